"""A sequence: one output being generated for a request.

All decoding sequences advance together, by one clock: a step updates no sequence's record.
"""

from operator import attrgetter
from typing import Any

from kvsim.request import Request, TokenRuns

by_order = attrgetter("order")  # to sort sequences by their place in `running`


class Sequence:
    """The engine's record of one output of one request (a request with n samples has n of them).

    prompt_tokens, output_tokens: its lengths; the policy may not look at the second. The result of
        a prompt that is computed alone counts as one output here, as it returns with the same step.
    final_tokens: KV slots it holds at its end, prompt + output - 1: the last token sampled is
        never computed.
    num_outputs: output tokens sampled so far, those of scheduled steps included.
    num_computed: slots scheduled so far; kept by the engine while it prefills, derived from the
        decode clock while it decodes.
    order: its place in `running`: a number that grows with each admission.
    decoding, base: whether it is in the decode batch, and its slots minus the steps of the decode
        clock.
    finished: all its outputs have returned.
    memory: the allocator's private record of the sequence; no other code reads it.
    drafting: the private record of speculative decoding.
    in_flight: the newest plan in flight that computes the sequence, if its scheduler tracks this.
    placeholders: output tokens that steps in flight will return (vLLM's num_output_placeholders).
        next_step: over the stages of a pipeline under asynchronous scheduling, the first step that
        may be its next one.
    """

    __slots__ = (
        "arrival_ps",
        "base",
        "decoding",
        "drafting",
        "final_tokens",
        "finished",
        "first_scheduled_ps",
        "first_token_ps",
        "hit_tokens",
        "id",
        "in_flight",
        "last_token_ps",
        "memory",
        "next_step",
        "num_computed",
        "num_outputs",
        "num_preemptions",
        "order",
        "output_start",
        "output_tokens",
        "placeholders",
        "priority",
        "prompt_runs",
        "prompt_tokens",
        "request",
    )

    def __init__(self, request: Request, arrival_ps: int, id: str | None = None) -> None:
        self.request = request
        self.id = request.id if id is None else id
        self.arrival_ps = arrival_ps
        self.priority = request.priority
        self.prompt_tokens = request.prompt_tokens
        self.output_tokens = max(1, request.output_tokens)
        self.final_tokens = self.prompt_tokens + self.output_tokens - 1
        self.prompt_runs: TokenRuns | None = request.prompt_runs
        self.output_start: int | None = request.output_start
        self.num_computed = 0
        self.num_outputs = 0
        self.num_preemptions = 0
        self.hit_tokens = 0
        self.order = -1
        self.decoding = False
        self.base = 0
        self.finished = False
        self.first_scheduled_ps = -1
        self.first_token_ps = -1
        self.last_token_ps = -1
        self.memory: Any = None
        self.drafting: Any = None
        self.in_flight: object = None
        self.placeholders = 0
        self.next_step = 0

    @property
    def num_tokens(self) -> int:
        """Prompt and generated tokens known so far, all to be computed before the next token."""
        return self.prompt_tokens + self.num_outputs

    def __repr__(self) -> str:
        return f"Sequence({self.id!r}, {self.num_tokens} of {self.final_tokens + 1} tokens)"


class DecodeClock:
    """Counter of one engine's decode steps, from which the slots of its decoding sequences follow.

    A sequence that joined at step j with n slots has n - j + steps of them; its `base` is n - j.
    """

    __slots__ = ("steps",)

    def __init__(self) -> None:
        self.steps = 0

    def join(self, seq: Sequence, num_tokens: int) -> int:
        """Add `seq` with num_tokens computed KV slots to the decode batch from the next step on;
        returns its base.
        """
        base = seq.base = num_tokens - self.steps
        return base

    def slots(self, seq: Sequence) -> int:
        """Slots of a decoding sequence, those of the step being scheduled included."""
        return seq.base + self.steps
