"""`python -m evidence.session.measure CONFIG --out FILE`: measure steps with only torch and numpy.

`kvsim calibrate fit` then fits the samples and their facts on any machine.
"""

import argparse
import json
import sys
from pathlib import Path

from evidence.session.compare import compare_stores
from evidence.session.files import read_plans, write_samples
from kvsim.backend.measure.grid import DESIGNS, grid
from kvsim.backend.measure.measure import measure
from kvsim.backend.measure.setup import Setup
from kvsim.backend.measure.timing import clock_of
from kvsim.backend.shape import Shape
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.writing import write_text


def main() -> int:
    """Measure; exit code 0, or 2 with a one-line error for invalid input."""
    parser = argparse.ArgumentParser(prog="python -m evidence.session.measure", description=__doc__)
    parser.add_argument("config", type=Path, help="config.json of a Llama-shaped model")
    parser.add_argument("--out", type=Path, required=True, help="samples; the log goes beside it")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--dtype", default=None, help="in place of the config's")
    parser.add_argument("--block-size", type=int, default=16)
    parser.add_argument("--rounds", type=int, help="3; on a CPU 10, or 4 if quick")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="a smaller grid")
    parser.add_argument("--eager", action="store_true", help="no captured steps")
    parser.add_argument(
        "--compare", action="store_true", help="paged and contiguous, growing and swapping instead"
    )
    parser.add_argument(
        "--held-out", type=Path, default=None, help='JSON lines {"chunks": ..., "contexts": ...}'
    )
    given = parser.parse_args()
    limits, rounds = DESIGNS[given.device, given.quick]
    try:
        setup = Setup(
            Shape.from_hf(given.config, given.dtype),
            given.device,
            given.block_size,
            False if given.eager else None,
            given.rounds or rounds,
            given.seed,
        )
        if given.compare:
            clock = clock_of(given.device, 0.2)
            found = compare_stores(setup.shape, given.device, clock, given.block_size)
            write_text(given.out, json.dumps(found, indent=1) + "\n")
            return 0
        plans = grid(limits)
        if given.held_out is not None:
            plans += read_plans(given.held_out)
        measured = measure(setup, plans, given.out.with_suffix(".log.jsonl"), _say)
        write_samples(given.out, measured)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201 - this is a command
        return 2
    return 0


def _say(done: int, total: int) -> None:
    if done % 10 == 0 or done == total:
        print(f"{done} of {total} timings", file=sys.stderr, flush=True)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
