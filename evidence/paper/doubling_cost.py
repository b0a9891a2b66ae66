"""The cost of doubling a contiguous buffer: by formula, and by the allocator that doubles."""

from collections.abc import Iterator

from evidence.paper.check import Check
from evidence.paper.experiment import EXPERIMENT
from kvsim.memory.allocator import Allocator, Demand
from kvsim.plumbing.units import MIB, PS_PER_MS
from kvsim.request import Request
from kvsim.scenario import Scenario
from kvsim.sequence import Sequence
from kvsim.simulation import Simulation

SOURCE = "arithmetic on OPT-13B and an A100-40GB"
FROM_TOKENS, TO_TOKENS = 1024, 2048


def checks() -> Iterator[Check]:
    """The copy when a buffer grows from 1,024 to 2,048 tokens, and all copies of a sequence that
    starts with 1 token.
    """
    allocator, seq = _filled(FROM_TOKENS, FROM_TOKENS)
    old = allocator.usage(None, busy=True)
    growth = allocator.extend(seq, FROM_TOKENS + 1)
    assert growth is not None
    both = allocator.usage(None, busy=True)
    held = allocator.capacity_bytes - both.idle - both.metadata
    copied = allocator.copied_bytes / MIB
    quantity = f"doubling {FROM_TOKENS:,} to {TO_TOKENS:,} tokens"
    yield Check(SOURCE, f"{quantity}: copied", 800, copied, "MiB", 0.0)
    milliseconds = growth.copy_ps / PS_PER_MS
    yield Check(SOURCE, f"{quantity}: time, read and written", 1.08, milliseconds, "ms", 0.005)
    ratio = held / (old.used + old.reserved + old.overprovisioned)
    yield Check(SOURCE, f"{quantity}: held at once, of the old buffer", 3.0, ratio, "x", 0.0)
    allocator, seq = _filled(1, 1)
    for tokens in range(2, TO_TOKENS + 1):
        growth = allocator.extend(seq, tokens)
        assert growth is not None
        growth.end()
    copied_tokens = allocator.copied_bytes // allocator.token_bytes
    yield Check(
        SOURCE,
        f"all growths from 1 to {TO_TOKENS:,} tokens: copied, one less than the capacity",
        TO_TOKENS - 1,
        copied_tokens,
        "tokens",
        0.0,
    )


def _filled(initial_tokens: int, tokens: int) -> tuple[Allocator, Sequence]:
    """An allocator with one sequence that holds `tokens` slots."""
    table = {"kind": "doubling", "initial_tokens": initial_tokens}
    scenario = Scenario.from_table({**EXPERIMENT, "allocator": [table]})
    allocator = Simulation(scenario, ()).replica_spec(scenario.allocator[0]).build().allocator
    seq = Sequence(Request("growing", 0, 1, TO_TOKENS), 0)
    allocator.admit(seq, Demand(tokens, tokens))
    return allocator, seq
