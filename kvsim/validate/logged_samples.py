"""Convert a server's log to step samples, for `kvsim calibrate fit server.log`.

Each line of vLLM's `--enable-logging-iteration-details` is one step. A `Decode batch` line of
SGLang summarises the decode steps since the previous one. Their mean time is running requests /
throughput, valid only if both lines have the same number of running requests. Steps with unknown
values are left out, with a note.
"""

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import NamedTuple

from kvsim.observed.logged_steps import LoggedStep
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.reading.files import read_bytes
from kvsim.step_time.calibrated.samples import SampleRow, SampleSet, read_samples

SUFFIXES = (".log", ".txt", ".out")
OVERLAP = 1.15  # of the lines' own times in the log's, beyond which steps overlap
LEAST_S = 5.0  # of a log, whose clock counts whole seconds
TOGETHER = 1.5  # times the median of like steps: a rank then waited for another's prompt
GUESSED_TOKENS = 512  # context of a sequence where nothing tells it


class LoggedSamples(NamedTuple):
    """Step samples of a log, and notes on how much was left out or guessed."""

    samples: SampleSet
    notes: tuple[str, ...]


def is_log(path: Path) -> bool:
    """Whether the file name's suffix is that of a server's log."""
    return path.suffix in SUFFIXES


def logged_samples(path: Path) -> LoggedSamples:
    """Read step samples from a log. InputError if the log has no steps, or its steps overlap."""
    from kvsim.readers.detect import read_sources

    notes: list[str] = []
    (read,) = read_sources([str(path)], notes)
    steps = read.description.steps
    if not steps:
        raise InputError(
            "the log says nothing of single steps",
            where=str(path),
            remedy="start vLLM with --enable-logging-iteration-details",
        )
    pool = read.description.settings.kv_cache_tokens
    rows = rows_of(steps, pool, notes)
    if not rows:
        raise InputError("no step of the log can be used", where=str(path), value="; ".join(notes))
    digest = sha256(read_bytes(path)).hexdigest()
    return LoggedSamples(SampleSet(path.name, digest, tuple(rows)), tuple(notes))


def rows_of(steps: Sequence[LoggedStep], pool: int | None, notes: list[str]) -> list[SampleRow]:
    """Sample rows for a log's steps; notes on steps that are left out are appended to `notes`.

    pool is the KV pool's size in tokens; together with the logged usage it gives the context
    length. InputError if the steps overlap.
    """
    return [*_iterations(steps, pool, notes), *_sglang(steps, notes)]


def steps_of(path: Path) -> SampleSet:
    """Read samples from a table, or from a log if the file name says so. Notes on a log go to
    stderr.
    """
    if not is_log(path):
        return read_samples(path)
    found = logged_samples(path)
    for note in found.notes:
        sys.stderr.write(f"note: {note}\n")
    return found.samples


def _iterations(
    steps: Sequence[LoggedStep], pool: int | None, notes: list[str]
) -> Iterator[SampleRow]:
    """Sample rows from vLLM's lines, one per step."""
    lines = [step for step in steps if step.line == "iteration" and not step.dummy]
    ranks = Counter(step.rank for step in lines)
    if not lines:
        return
    for rank in ranks:
        _check_overlap([step for step in lines if step.rank == rank])
    usual: dict[int, float] = {}
    if len(ranks) > 1:
        sizes: dict[int, list[float]] = {}
        for step in lines:
            if not step.prefill_tokens:
                sizes.setdefault(step.decode_requests or 0, []).append(step.elapsed_ms or 0.0)
        usual = {size: median(times) for size, times in sizes.items()}
    left, guessed = Counter[str](), 0
    for step in lines:
        requests, tokens = step.decode_requests or 0, step.decode_tokens or 0
        if tokens != requests:
            left["with drafts, or tokens computed again"] += 1
            continue
        longest = TOGETHER * usual.get(requests, float("inf"))
        if not step.prefill_tokens and (step.elapsed_ms or 0.0) > longest:
            left["that waited for another rank's prompt"] += 1
            continue
        held = round(step.kv_usage * pool) if step.kv_usage and pool else None
        guessed += held is None
        held = GUESSED_TOKENS * requests if held is None else held
        yield _row(step, requests, held, (step.elapsed_ms or 0.0) / 1e3)
    if guessed:
        notes.append(
            f"{guessed:,} steps do not say their context (the pool's size and usage): "
            f"{GUESSED_TOKENS} tokens a sequence are a guess"
        )
    notes += [f"{count:,} steps {why} are left out" for why, count in left.items()]


def _check_overlap(lines: Sequence[LoggedStep]) -> None:
    """InputError if the steps of one rank take longer in total than the log covers.

    Asynchronous scheduling then runs steps in parallel, and a line's time is not the time of its
    step.
    """
    timed = [step for step in lines if step.time_s is not None]
    if len(timed) < 2:
        return
    spent_s = (timed[-1].time_s or 0.0) - (timed[0].time_s or 0.0)
    told_s = sum(step.elapsed_ms or 0.0 for step in timed[1:]) / 1e3
    if spent_s > LEAST_S and told_s > OVERLAP * spent_s:
        raise InputError(
            "the log's steps overlap: asynchronous scheduling",
            where="the log",
            value=f"{told_s:.1f} s of steps in {spent_s:.1f} s",
            remedy="start the server with --no-async-scheduling, or fit with kvsim calibrate pace",
        )


def _sglang(steps: Sequence[LoggedStep], notes: list[str]) -> Iterator[SampleRow]:
    """Sample rows from SGLang's prefill and decode lines."""
    changed = 0
    for before, step in pairwise(step for step in steps if step.line != "iteration"):
        rate, running = step.tokens_per_s, step.decode_requests or 0
        if not rate:
            continue
        if step.line == "prefill" and step.prefill_tokens:
            yield _row(step, 0, 0, step.prefill_tokens / rate)
        elif step.line == "decode" and running:
            if before.line != "decode" or before.decode_requests != running:
                changed += 1
                continue
            yield _row(step, running, step.held_tokens or running, running / rate)
    if changed:
        notes.append(f"{changed:,} lines of a batch that changed on the way are left out")


def _row(step: LoggedStep, sequences: int, held: int, seconds: float) -> SampleRow:
    """One sample row. Several prompts in a step are assumed to have equal lengths.

    `held` tokens of context include the prompts computed in this step, which are subtracted: the
    decoding sequences do not attend to them.
    """
    new, prompts = step.prefill_tokens or 0, step.prefill_requests or 1
    context = max(sequences, held - new) if sequences else 0
    several = 1 < prompts <= new
    return SampleRow(
        prefill_tokens=0 if several else new,
        chunks=_even(new, prompts) if several else (),
        decode_seqs=sequences,
        decode_context_tokens=context,
        seconds=max(seconds, 1e-9),
        source=step.line,
    )


def _even(tokens: int, prompts: int) -> tuple[tuple[int, int], ...]:
    """(new tokens, context tokens) of `prompts` prefill chunks that share `tokens` evenly, each
    without context.
    """
    least, more = divmod(tokens, prompts)
    return tuple((least + (at < more), 0) for at in range(prompts))
