"""Request parameters beside lengths: max_tokens, priorities, parallel samples, adapters."""

from kvsim.workload.options import WorkloadOptions, shares
from kvsim.workload.random import generator


class Clients:
    """The choices of one workload's clients for `count` requests."""

    def __init__(self, options: WorkloadOptions, count: int, seed: int) -> None:
        self.n = options.n
        self._policy = options.max_tokens
        self._priorities = priorities(options, count, seed)
        pool = options.adapters
        self._adapters = None if pool is None else pool.draw(count, generator(seed, "adapters"))
        self.cut = 0

    def priority(self, index: int) -> int:
        """The priority of request `index`."""
        return self._priorities[index] if self._priorities else 0

    def adapter(self, index: int) -> int | None:
        """The adapter that computes request (or conversation) `index`; None: the base model."""
        return None if self._adapters is None else self._adapters[index]

    def output(self, output_tokens: int) -> tuple[int, int | None]:
        """(output, declared max_tokens): a limit below the output ends it; `cut` counts these."""
        if not output_tokens:  # the prompt alone
            return 0, None
        declared = self._policy.declared(output_tokens)
        if declared is not None and declared < output_tokens:
            self.cut += 1
            output_tokens = declared
        return output_tokens, declared

    def notes(self, count: int) -> list[str]:
        """Notes on changed output lengths."""
        return [f"max_tokens ended {self.cut:,} of {count:,} outputs"] if self.cut else []


def priorities(options: WorkloadOptions, count: int, seed: int) -> list[int]:
    """A priority for each of `count` requests, drawn by share; [] if there are no classes."""
    classes = options.priorities
    if not classes:
        return []
    weights = shares([entry.share for entry in classes], "workload.priorities.share")
    drawn = generator(seed, "priorities").choice(len(classes), size=count, p=weights)
    return [classes[index].priority for index in drawn]
