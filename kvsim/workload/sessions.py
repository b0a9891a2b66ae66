"""Conversations: each prompt contains the history, and follows the last answer after a pause.

The content of a conversation is one range of token ids, in order. So a later prompt is its shared
prefix and one run that ends with the user's newest words.
"""

from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np

from kvsim.plumbing.choice import OneOf
from kvsim.plumbing.errors import InputError
from kvsim.request import PromptItem, Request, Stream, TokenRuns
from kvsim.token_runs import adapter_id, under_adapter
from kvsim.workload.arrivals import ARRIVALS, ArrivalOptions
from kvsim.workload.arrivals.process import ps
from kvsim.workload.clients import Clients
from kvsim.workload.content import TokenIds, length_of, placed
from kvsim.workload.durations import DURATIONS, DurationOptions
from kvsim.workload.lengths import LENGTHS, LengthOptions, OneOrMore
from kvsim.workload.options import (
    MOST_REQUESTS,
    RequestCount,
    TokenLimit,
    WorkloadOptions,
    resolve_limit,
)
from kvsim.workload.prefixes import ItemPool, PrefixPool, draw_items, draw_prefixes
from kvsim.workload.random import generator
from kvsim.workload.rounds import RoundOrder, in_rounds


class Sessions(WorkloadOptions):
    """`kind = "sessions"`: num_sessions conversations that start by `arrivals`.

    turns: number of requests in a conversation. first_prompt: tokens of the user's first message
    (default: as `prompt`); prompt: tokens of each later message, added to the history. output:
    tokens of each answer. think: seconds from an answer to the next request. prefixes: shared
    prefixes that the conversation begins with. items: images, sounds and videos, placed before the
    user's message. max_context: a conversation ends before the turn that would not fit, prompt and
    output. In a closed loop a user starts the next conversation after the last answer of the one
    before. rounds: a turn begins when all conversations have the answer to the turn before. Its
    requests are spaced by `arrivals`, with the conversations in order of their start ("in-order")
    or shuffled ("random").
    """

    num_sessions: RequestCount
    arrivals: Annotated[ArrivalOptions, OneOf(ARRIVALS, "workload.arrivals")]
    turns: Annotated[LengthOptions, OneOrMore("workload.turns")]
    first_prompt: Annotated[LengthOptions, OneOrMore("workload.first_prompt")] | None = None
    prompt: Annotated[LengthOptions, OneOrMore("workload.prompt")]
    output: Annotated[LengthOptions, OneOf(LENGTHS, "workload.output")]
    think: Annotated[DurationOptions, OneOf(DURATIONS, "workload.think")]
    prefixes: tuple[PrefixPool, ...] = ()
    items: tuple[ItemPool, ...] = ()
    max_context: TokenLimit | None = None
    rounds: RoundOrder | None = None

    def generate(self, seed: int, *, base: Path, max_model_len: int | None) -> Stream:
        """The requests, conversation by conversation, in the order in which conversations start."""
        count = self.num_sessions
        limit = resolve_limit(self.max_context, max_model_len, "workload.max_context")
        turns = self.turns.draw(count, generator(seed, "turns"), base)
        total = int(turns.sum())
        if total > MOST_REQUESTS:
            raise InputError(
                "too many turns", where="workload.turns", value=f"{total:,}", limit=MOST_REQUESTS
            )
        prompts = self.prompt.draw(total, generator(seed, "prompt"), base)
        first = np.concatenate(([0], np.cumsum(turns)[:-1]))
        opening = self.prompt if self.first_prompt is None else self.first_prompt
        prompts[first] = opening.draw(count, generator(seed, "first_prompt"), base)
        outputs = self.output.draw(total, generator(seed, "output"), base)
        think_ps = ps(self.think.draw_s(total, generator(seed, "think"))).tolist()
        schedule = self.arrivals.schedule(count, generator(seed, "arrivals"))
        clients = Clients(self, total, seed)
        ids = TokenIds()
        prefixes = draw_prefixes(self.prefixes, count, seed, base, ids)
        items = draw_items(self.items, total, seed, base, ids)
        conversations: list[list[Request]] = []
        last: list[str | None] = []
        for session in range(count):
            before = -1 if schedule.after is None else int(schedule.after[session])
            start = _Start(
                arrival_ps=int(schedule.arrival_ps[session]),
                after=None if before < 0 else last[before],
                think_ps=0 if schedule.think_ps is None else int(schedule.think_ps[session]),
            )
            here = slice(int(first[session]), int(first[session] + turns[session]))
            made = _conversation(
                f"s{session}",
                start,
                prefixes[session],
                [
                    _Turn(*turn)
                    for turn in zip(
                        prompts[here].tolist(),
                        outputs[here].tolist(),
                        think_ps[here],
                        items[here],
                        strict=True,
                    )
                ],
                ids,
                limit,
                clients,
                here.start,
                clients.adapters[here.start],
            )
            conversations.append(made)
            last.append(made[-1].id if made else start.after)
        if self.rounds is not None:
            conversations = in_rounds(conversations, self.arrivals, self.rounds, seed)
        requests = [request for made in conversations for request in made]
        notes = [*clients.notes(total), *self.arrivals.notes(count)]
        if limit is not None:
            cut = total - len(requests)
            if cut:
                notes.append(
                    f"left out {cut:,} of {total:,} turns that would pass {limit:,} tokens"
                )
        return Stream(tuple(requests), tuple(notes), {"seed": str(seed)})


class _Start(NamedTuple):
    """The arrival of a conversation's first request."""

    arrival_ps: int
    after: str | None
    think_ps: int


class _Turn(NamedTuple):
    """One turn: tokens of the new message and its items, tokens of the answer, and the pause after
    it.
    """

    prompt: int
    output: int
    pause_ps: int
    items: TokenRuns


def _conversation(
    name: str,
    start: _Start,
    prefix: TokenRuns,
    turns: list[_Turn],
    ids: TokenIds,
    limit: int | None,
    clients: Clients,
    first_index: int,
    adapter: int | None,
) -> list[Request]:
    """The requests of one conversation."""
    content = ids.take(sum(turn.prompt + turn.output for turn in turns))
    after, think_ps = start.after, start.think_ps
    head, said = prefix, 0  # all up to the newest item, and the words behind it
    shown: tuple[PromptItem, ...] = ()
    requests: list[Request] = []
    for turn, (prompt, drawn, pause_ps, items) in enumerate(turns):
        output, max_tokens = clients.output(drawn)
        if items:
            head = (*head, *([(content, said)] if said else []))
            shown += placed(items, length_of(head))
            head, content, said = (*head, *items), content + said, 0
        tokens = length_of(head) + said + prompt
        if limit is not None and tokens + output > limit:
            break
        said += prompt
        requests.append(
            Request(
                id=f"{name}.{turn}",
                arrival_ps=start.arrival_ps,
                prompt_tokens=tokens,
                output_tokens=output,
                max_tokens=max_tokens,
                priority=clients.priorities[first_index + turn],
                n=clients.n,
                prompt_runs=under_adapter((*head, (content, said)), adapter),
                output_start=adapter_id(content + said, adapter),
                after=after,
                think_ps=think_ps,
                session=name,
                adapter=adapter,
                items=shown,
                any_user=not requests and after is not None,
            )
        )
        said += output
        after, think_ps = requests[-1].id, pause_ps
    return requests
