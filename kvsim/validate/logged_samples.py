"""Convert a server's log to step samples, for `kvsim calibrate fit server.log`.

Each line of vLLM's `--enable-logging-iteration-details` is one step. A `Decode batch` line of
SGLang summarises the decode steps since the previous one. Their mean time is running requests /
throughput, valid only if both lines have the same number of running requests. Steps with unknown
values are left out, with a note.

The throughput in a `Prefill batch` line is tokens over the time since the previous such line, with
idle time and decode steps in between. The tokens are those of the previous line up to SGLang
0.5.10, the line's own later (sglang#22497). The time is that of the step before where older
versions print the line ahead of its step and scheduling overlaps. So a prompt step is used only
where all three are alike: see `_in_a_row`.
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
from kvsim.readers.description import ServerSettings
from kvsim.step_time.calibrated.samples import SampleRow, SampleSet, read_samples

SUFFIXES = (".log", ".txt", ".out")
OVERLAP = 1.15  # of the lines' own times in the log's, beyond which steps overlap
LEAST_S = 5.0  # of a log, whose clock counts whole seconds
TOGETHER = 1.5  # times the median of like steps: a rank then waited for another's prompt
GUESSED_TOKENS = 512  # context of a sequence where nothing tells it
IN_A_ROW = 3  # prompt steps that a line's time may be of: its own, the last, the one before
FEWEST_PROMPTS = 10  # SGLang's prompt steps to fit on; as many as `corrected_steps` asks of all


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
    rows = rows_of(steps, read.description.settings, notes)
    if not rows:
        raise InputError("no step of the log can be used", where=str(path), value="; ".join(notes))
    digest = sha256(read_bytes(path)).hexdigest()
    return LoggedSamples(SampleSet(path.name, digest, tuple(rows)), tuple(notes))


def rows_of(
    steps: Sequence[LoggedStep], settings: ServerSettings, notes: list[str]
) -> list[SampleRow]:
    """Sample rows for a log's steps; notes on steps that are left out are appended to `notes`.

    From `settings` come the KV pool's size, which gives the context length together with the
    logged usage, and the budget of SGLang's prompt steps. InputError if the steps overlap.
    """
    iterations = _iterations(steps, settings.kv_cache_tokens, notes)
    return [*iterations, *_sglang(steps, _full_prompt_tokens(settings), notes)]


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


def _full_prompt_tokens(settings: ServerSettings) -> int | None:
    """Fewest tokens of an SGLang prompt step that used up its budget; None: unknown, or no budget.

    A remainder below one page stays unused. None also if prompt steps also decode (mixed
    chunks), since their lines do not give the decoding context.
    """
    budget = settings.chunked_prefill_size or 0
    if budget <= 0 or settings.enable_mixed_chunk:
        return None
    return max(1, budget - (settings.block_size or 1) + 1)


def _sglang(steps: Sequence[LoggedStep], full: int | None, notes: list[str]) -> Iterator[SampleRow]:
    """Sample rows from SGLang's prefill and decode lines."""
    changed, prompts = 0, 0
    rows: list[SampleRow] = []
    of_rank: dict[str | None, list[LoggedStep]] = {}
    for step in steps:
        if step.line == "iteration":
            continue
        lines = of_rank.setdefault(step.rank, [])
        lines.append(step)
        rate, running = step.tokens_per_s, step.decode_requests or 0
        if step.line == "prefill" and step.prefill_tokens:
            prompts += 1
            if rate and full is not None and _in_a_row(lines[-IN_A_ROW:], full):
                rows.append(_row(step, 0, 0, step.prefill_tokens / rate))
        elif step.line == "decode" and running and rate and len(lines) > 1:
            if lines[-2].line != "decode" or lines[-2].decode_requests != running:
                changed += 1
                continue
            rows.append(_row(step, running, step.held_tokens or running, running / rate))
    if changed:
        notes.append(f"{changed:,} lines of a batch that changed on the way are left out")
    timed = sum(row.source == "prefill" for row in rows)
    notes += _notes_on_prompts(prompts, timed, full)
    yield from (row for row in rows if row.source != "prefill" or timed >= FEWEST_PROMPTS)


def _in_a_row(lines: Sequence[LoggedStep], full: int) -> bool:
    """Whether one rank's last lines are of equal prompt steps, each at once after the other.

    A step that used up the budget of `full` tokens may leave prompts waiting. The next prompt step
    then follows at once, unless nothing more fits the pool. In that case requests finish first,
    and fewer run in the next step than were added (the last one may be unfinished).
    """
    if len(lines) < IN_A_ROW or any(
        line.line != "prefill" or (line.prefill_tokens or 0) < full for line in lines
    ):
        return False
    return all(
        (before.pending_tokens or before.queued_requests or 0) > 0
        and (line.decode_requests or 0)
        >= (before.decode_requests or 0) + (before.prefill_requests or 1) - 1
        for before, line in pairwise(lines)
    )


def _notes_on_prompts(prompts: int, timed: int, full: int | None) -> Iterator[str]:
    """Notes on an SGLang log's prompt steps: how many are left out, and what is guessed.

    timed: how many of the `prompts` steps have a time of their own.
    """
    if timed < prompts:
        why = "" if full else "; the log does not say their budget (chunked_prefill_size)"
        yield (
            f"{prompts - timed:,} of {prompts:,} prompt steps are left out: their lines' time may "
            f"include idle time or other steps{why}"
        )
    if prompts and timed < FEWEST_PROMPTS:
        few = f"the other {timed} are too few: " if timed else ""
        yield f"{few}no factor or time of prompt steps is fitted: each keeps its prior"
    elif timed:
        yield f"{timed:,} prompt steps do not say their context: that they have none is a guess"


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
