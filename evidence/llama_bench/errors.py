"""Tokens per second of llama-bench: by kvsim's roofline, and by a published table.

published.csv: github.com/XiongjieDai/GPU-Benchmarks-on-LLM-Inference, aa72e0e (May 2024), Llama 3
on one device, all rows with a device of kvsim's catalogue. pp N: a prompt of N tokens in
micro-batches of 512. tg N: N tokens generated one by one from an empty context. Nothing is fitted
on these rows.
"""

import csv
import sys
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from statistics import fmean, median
from typing import NamedTuple

from kvsim.device import named_device
from kvsim.model import ModelOptions
from kvsim.plumbing.units import PS_PER_S
from kvsim.step import Chunk, StepShape
from kvsim.step_time.form import StepTime
from kvsim.step_time.options import Hardware
from kvsim.step_time.roofline import Roofline

MICRO_BATCH = 512  # tokens: llama.cpp's n_ubatch
# Bytes a parameter of the files: 4.58 GiB of 8.03 billion in Q4_K_M, as the table's page says.
BYTES_PER_PARAM = {"F16": 2.0, "Q4_K_M": 4.58 * 2**30 / 8.03e9}

KINDS = (
    ("Apple's GPUs", "apple-"),
    ("consumer cards", ("rtx-3", "rtx-4")),
    ("workstation and data centre cards", ""),
)
TESTS = {"tg": "generation", "pp": "prompts"}


class BenchSpeed(NamedTuple):
    """One row: measured tokens per second, and tokens per second by the roofline."""

    device: str
    model: str
    weights: str
    test: str
    measured: float
    simulated: float

    @property
    def error(self) -> float:
        """Roofline / measured - 1; positive if the roofline is too fast."""
        return self.simulated / self.measured - 1


class BenchErrors(NamedTuple):
    """Errors of a group of rows: number of rows, median error, mean and largest |error|."""

    rows: int
    bias: float
    mean: float
    worst: float


def speeds() -> Iterator[BenchSpeed]:
    """Every row of the published table."""
    text = files("evidence.llama_bench").joinpath("published.csv").read_text()
    for device, model, weights, test, measured in list(csv.reader(text.splitlines()))[1:]:
        form = _form(device, model, weights)
        kind, tokens = test[:2], int(test[2:])
        seconds = (_prompt_ps if kind == "pp" else _generation_ps)(form, tokens) / PS_PER_S
        yield BenchSpeed(device, model, weights, test, float(measured), tokens / seconds)


def grouped(rows: list[BenchSpeed]) -> dict[tuple[str, str], BenchErrors]:
    """BenchErrors by (kind of device, kind of test)."""
    groups: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        kind = next(kind for kind, start in KINDS if row.device.startswith(start))
        groups.setdefault((kind, row.test[:2]), []).append(row.error)
    return {
        key: BenchErrors(len(errors), median(errors), fmean(map(abs, errors)), max(errors, key=abs))
        for key, errors in groups.items()
    }


@cache
def _form(device: str, model: str, weights: str) -> StepTime:
    options = ModelOptions(name=model, weight_bytes_per_param=BYTES_PER_PARAM[weights])
    built = options.build(offline=True)
    hardware = Hardware(built, named_device(device), layout=options.layout(built))
    return Roofline().build(hardware)


def _prompt_ps(form: StepTime, tokens: int) -> int:
    """Time in ps of a prompt, one micro-batch after the other."""
    starts = range(0, tokens, MICRO_BATCH)
    shapes = (
        StepShape((Chunk(min(MICRO_BATCH, tokens - start), start),), 0, 0) for start in starts
    )
    return sum(map(form.step_ps, shapes))


def _generation_ps(form: StepTime, tokens: int) -> int:
    """Time in ps to generate `tokens` tokens one by one."""
    return sum(form.step_ps(StepShape((), 1, context)) for context in range(1, tokens + 1))


def table() -> Iterator[str]:
    """The groups as rows of Markdown."""
    for (kind, test), errors in sorted(grouped(list(speeds())).items()):
        yield (
            f"| {kind}, {TESTS[test]} | {errors.rows} | {100 * errors.bias:+.0f} % "
            f"| {100 * errors.mean:.0f} % | {100 * errors.worst:+.0f} % |"
        )


def main() -> None:
    """Print the groups as the table of docs/llamacpp.md."""
    for line in table():
        sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    main()
