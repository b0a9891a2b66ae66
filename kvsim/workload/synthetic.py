"""Synthetic single requests with lengths drawn from distributions; for conversations see
`sessions`.
"""

from pathlib import Path
from typing import Annotated, Self

import numpy as np
from pydantic import Field, model_validator

from kvsim.plumbing.choice import OneOf
from kvsim.plumbing.errors import InputError
from kvsim.request import PromptItem, Request, Stream
from kvsim.token_runs import under_adapter
from kvsim.workload.arrivals import ARRIVALS, ArrivalOptions
from kvsim.workload.clients import Clients
from kvsim.workload.content import TokenIds, filled, kept, length_of, placed
from kvsim.workload.lengths import LENGTHS, LengthOptions, OneOrMore
from kvsim.workload.lengths.distribution import Lengths, clipped_lengths
from kvsim.workload.options import (
    RequestCount,
    TokenLimit,
    WorkloadOptions,
    resolve_limit,
)
from kvsim.workload.pairs import DistributedPairs, Pairs, RecordedPairs
from kvsim.workload.prefixes import ItemPool, PrefixPool, draw_items, draw_prefixes
from kvsim.workload.random import generator

MOST_REDRAWS = 1000


class Synthetic(WorkloadOptions):
    """`kind = "synthetic"`: num_requests, lengths from `prompt` and `output` or from `lengths`.

    correlation: between prompt and output (of a normal copula). prefixes come before the drawn
    prompt and add to its length. Items (images, sounds and videos) come between the two and also
    add to it. Prompts without either are private. redraw_over: requests with more tokens in all
    (prefix included) are drawn again; clip_to: such requests are cut.
    """

    num_requests: RequestCount
    arrivals: Annotated[ArrivalOptions, OneOf(ARRIVALS, "workload.arrivals")]
    prompt: Annotated[LengthOptions, OneOrMore("workload.prompt")] | None = None
    output: Annotated[LengthOptions, OneOf(LENGTHS, "workload.output")] | None = None
    correlation: Annotated[float, Field(ge=-1, le=1)] = 0.0
    lengths: RecordedPairs | None = None
    prefixes: tuple[PrefixPool, ...] = ()
    items: tuple[ItemPool, ...] = ()
    redraw_over: TokenLimit | None = None
    clip_to: TokenLimit | None = None

    @model_validator(mode="after")
    def _lengths_once(self) -> Self:
        if self.lengths is None and (self.prompt is None or self.output is None):
            raise ValueError("prompt and output are both needed, or lengths instead of them")
        if self.lengths is not None and (self.prompt or self.output or self.correlation):
            raise ValueError("lengths excludes prompt, output and correlation")
        if self.redraw_over and self.clip_to:
            raise ValueError("redraw_over and clip_to exclude each other")
        return self

    def generate(self, seed: int, *, base: Path, max_model_len: int | None) -> Stream:
        """num_requests requests in order of arrival."""
        count, notes = self.num_requests, list[str]()
        ids = TokenIds()
        prefixes = draw_prefixes(self.prefixes, count, seed, base, ids)
        heads = [length_of(runs) if runs else 0 for runs in prefixes]
        items: list[tuple[PromptItem, ...]] = [()] * count
        for index, found in enumerate(draw_items(self.items, count, seed, base, ids)):
            if found:
                items[index] = placed(found, heads[index])
                heads[index] += length_of(found)
                prefixes[index] = (*prefixes[index], *found)
        before = np.array(heads, dtype=np.int64)
        prompts, outputs = self._lengths(before, seed, base, max_model_len, notes)
        schedule = self.arrivals.schedule(count, generator(seed, "arrivals"))
        clients = Clients(self, count, seed)
        after = [-1] * count if schedule.after is None else schedule.after.tolist()
        think = [0] * count if schedule.think_ps is None else schedule.think_ps.tolist()
        requests = []
        columns = zip(
            schedule.arrival_ps.tolist(),
            prompts.tolist(),
            outputs.tolist(),
            clients.priorities,
            clients.adapters,
            strict=True,
        )
        for index, (arrival_ps, prompt_tokens, output_tokens, priority, adapter) in enumerate(
            columns
        ):
            runs, whole = prefixes[index] or None, items[index]
            if whole:
                whole = kept(whole, prompt_tokens)
            if runs is not None:
                runs = under_adapter(filled(runs, prompt_tokens, ids), adapter)
            output, max_tokens = clients.output(output_tokens)
            requests.append(
                Request(
                    f"r{index}",
                    arrival_ps,
                    prompt_tokens,
                    output,
                    max_tokens,
                    priority,
                    clients.n,
                    runs,
                    after=None if after[index] < 0 else f"r{after[index]}",
                    think_ps=think[index],
                    items=whole,
                    adapter=adapter,
                    any_user=after[index] >= 0,
                )
            )
        notes += [*clients.notes(count), *self.arrivals.notes(count)]
        return Stream(tuple(requests), tuple(notes), {"seed": str(seed)})

    def _pairs(self, seed: int, base: Path) -> Pairs:
        if self.lengths is not None:
            return self.lengths.open(seed, base)
        assert self.prompt is not None
        assert self.output is not None
        return DistributedPairs(self.prompt, self.output, self.correlation, seed, base)

    def _lengths(
        self, before: Lengths, seed: int, base: Path, max_model_len: int | None, notes: list[str]
    ) -> tuple[Lengths, Lengths]:
        """(prompt lengths, output lengths) of all requests. before: lengths of the shared prefixes,
        which prompts include.
        """
        pairs = self._pairs(seed, base)
        prompts, outputs = pairs.draw(len(before))
        prompts = prompts + before
        redraw_over = resolve_limit(self.redraw_over, max_model_len, "workload.redraw_over")
        if redraw_over is not None:
            again = np.flatnonzero(prompts + outputs > redraw_over)
            if len(again):
                shown = f"{len(again):,} of {len(before):,} sampled requests"
                notes.append(f"{shown} exceeded {redraw_over:,} tokens and were sampled again")
            for _ in range(MOST_REDRAWS):
                if not len(again):
                    break
                fresh, outputs[again] = pairs.draw(len(again))
                prompts[again] = fresh + before[again]
                again = again[(prompts + outputs)[again] > redraw_over]
            else:
                raise InputError(
                    f"no lengths within the limit after {MOST_REDRAWS} draws",
                    where="workload.redraw_over",
                    limit=redraw_over,
                    remedy="shorten the lengths or use clip_to",
                )
        clip_to = resolve_limit(self.clip_to, max_model_len, "workload.clip_to")
        if clip_to is not None:
            long = np.flatnonzero(prompts + outputs > clip_to).tolist()
            for index in long:
                prompts[index], outputs[index] = clipped_lengths(
                    int(prompts[index]), int(outputs[index]), clip_to
                )
            if long:
                shown = f"clipped {len(long):,} of {len(before):,} requests"
                notes.append(f"{shown} to {clip_to:,} tokens")
        return prompts, outputs
