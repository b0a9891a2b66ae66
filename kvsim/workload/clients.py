"""Request parameters other than lengths: max_tokens, priorities, parallel samples, adapters."""

from collections.abc import Sequence

from kvsim.workload.options import WorkloadOptions, shares
from kvsim.workload.random import generator


class Clients:
    """Client-side parameters of a workload's `count` requests.

    priorities, adapters: of each request (or conversation); adapter None: the base model.
    """

    def __init__(self, options: WorkloadOptions, count: int, seed: int) -> None:
        self.n = options.n
        self._policy = options.max_tokens
        self.priorities = priorities(options, count, seed)
        pool, nobody = options.adapters, [None] * count
        drawn = None if pool is None else pool.draw(count, generator(seed, "adapters"))
        self.adapters: Sequence[int | None] = nobody if drawn is None else drawn
        self.cut = 0

    def output(self, output_tokens: int) -> tuple[int, int | None]:
        """(output tokens, declared max_tokens). A declared limit below the output cuts the output;
        `cut` counts such requests.
        """
        if not output_tokens:  # the prompt alone
            return 0, None
        declared = self._policy.declared(output_tokens)
        if declared is not None and declared < output_tokens:
            self.cut += 1
            output_tokens = declared
        return output_tokens, declared

    def notes(self, count: int) -> list[str]:
        """Notes for the user about outputs that were cut."""
        return [f"max_tokens ended {self.cut:,} of {count:,} outputs"] if self.cut else []


def priorities(options: WorkloadOptions, count: int, seed: int) -> list[int]:
    """A priority for each of `count` requests, drawn by share; 0 if there are no classes."""
    classes = options.priorities
    if not classes:
        return [0] * count
    weights = shares([entry.share for entry in classes], "workload.priorities.share")
    drawn = generator(seed, "priorities").choice(len(classes), size=count, p=weights)
    return [classes[index].priority for index in drawn]
