"""Steps out of servers' own logs: what is read, and what is left out and said."""

from pathlib import Path

import pytest

from kvsim.plumbing.errors import InputError
from kvsim.readers.sglang.log_steps import step_lines as sglang_lines
from kvsim.readers.vllm.log_steps import step_lines as vllm_lines
from kvsim.step import Chunk, StepShape
from kvsim.step_time.calibrated.fit import fit
from kvsim.step_time.calibrated.samples import Sample
from kvsim.validate.logged_samples import logged_samples

CORE = "(EngineCore_DP1 pid=9) INFO 12-22 21:44:{second:02} [core.py:349] "
STEP = (
    "Iteration({number}): {chunks} context requests, {new} context tokens, {running} generation "
    "requests, {tokens} generation tokens, iteration elapsed time: {ms:.2f} ms"
)


def step(number=1, second=0, chunks=0, new=0, running=0, tokens=None, ms=1.0, more=""):
    made = STEP.format(
        number=number,
        chunks=chunks,
        new=new,
        running=running,
        tokens=running if tokens is None else tokens,
        ms=ms,
    )
    return CORE.format(second=second) + made + more


def log(folder: Path, lines: list[str], pool: int | None = 100_000) -> Path:
    path = folder / "server.log"
    head = [] if pool is None else [f"INFO GPU KV cache size: {pool:,} tokens"]
    path.write_text("\n".join([*head, *lines]) + "\n")
    return path


def test_vllm_step_lines_of_each_version_become_samples():
    notes: list[str] = []
    front = (
        "(APIServer pid=1) INFO 10-08 13:00:00 [loggers.py:182] Engine 001: Iteration(12): 1 "
        "context requests, 64 context tokens, 3 generation requests, 3 generation tokens, "
        "iteration elapsed time: 24.10 ms, CUDA KV cache usage: 41.2%, encoder inputs: 1"
    )
    dummy = front.replace(" ms,", " ms (dummy),")
    idle = step(running=0, ms=0.0)
    first, second, third = vllm_lines([step(running=20, ms=10.99), front, dummy, idle], notes)
    assert (first.rank, first.decode_tokens, first.elapsed_ms) == ("1", 20, 10.99)
    assert (second.rank, second.prefill_tokens, second.kv_usage) == ("001", 64, 0.412)
    assert third.dummy
    assert notes == ["1 steps that computed nothing are left out"]


def test_sglang_step_lines_become_samples():
    decode = (
        "[2025-05-02 00:12:34 TP0] Decode batch. #running-req: 16, #token: 14640, "
        "token usage: 0.05, cuda graph: True, gen throughput (token/s): 1600.00, #queue-req: 0"
    )
    prefill = (
        "[2025-05-02 00:12:36 TP0] Prefill batch. #new-seq: 1, #new-token: 700, #cached-token: 3, "
        "token usage: 0.00, #running-req: 0, #queue-req: 2"
    )
    first, second = sglang_lines([decode, prefill])
    assert (first.line, first.decode_requests, first.held_tokens) == ("decode", 16, 14640)
    assert (first.tokens_per_s, first.cuda_graph, first.rank) == (1600.0, True, "TP0")
    assert (second.prefill_tokens, second.cached_tokens, second.time_s) == (700, 3, 2.0)


def test_log_lines_without_a_step_time_are_left_out_with_a_note(tmp_path):
    usage = ", GPU KV cache usage: 4.0%"
    lines = [
        step(1, running=20, ms=10, more=usage),
        step(2, running=20, tokens=60, ms=30, more=usage),
        step(3, running=20, chunks=1, new=100, ms=30, more=usage),
        step(4, running=20, ms=10),
    ]
    samples, notes = logged_samples(log(tmp_path, lines))
    shapes = [row.sample().shape for row in samples.rows]
    assert [shape.context_tokens for shape in shapes] == [4000, 3900, 512 * 20]
    assert any("1 steps do not say their context" in note for note in notes)
    assert any("1 steps with drafts, or tokens computed again" in note for note in notes)


def prompts(new=2048, running=0, waiting=1, rate=20480.0):
    return (
        f"[2026-05-02 00:12:36] Prefill batch, #new-seq: 1, #new-token: {new}, #cached-token: 0, "
        f"token usage: 0.10, #running-req: {running}, #queue-req: {waiting}, "
        f"cuda graph: False, input throughput (token/s): {rate:.2f}"
    )


def test_sglang_prompt_steps_after_idle_time_or_other_steps_are_left_out(tmp_path):
    budget = (
        "[2026-05-02 00:12:30] max_total_num_tokens=90000, chunked_prefill_size=2048, "
        "max_prefill_tokens=16384, max_running_requests=64, context_len=8192"
    )
    decode = (
        "[2026-05-02 00:12:38] Decode batch, #running-req: 1, #token: 900, token usage: 0.01, "
        "cuda graph: True, gen throughput (token/s): 100.00, #queue-req: 1"
    )
    flood = [prompts() for _ in range(12)]
    others = [
        *(decode, prompts(rate=9)),  # decoded in between
        *(prompts(waiting=0), prompts(rate=9), prompts(running=2)),  # was idle in between
        *(prompts(running=1, rate=9), prompts(running=1)),  # waited for a request to finish
        *(prompts(new=300), decode, decode),  # did not use up its budget
    ]
    samples, notes = logged_samples(log(tmp_path, [budget, *flood, *others], pool=None))
    seconds = {kind: [] for kind in ("prefill", "decode")}
    for row in samples.rows:
        seconds[row.source].append(row.seconds)
    assert seconds == {"prefill": pytest.approx([0.1] * 10), "decode": pytest.approx([0.01])}
    assert any(note.startswith("9 of 19 prompt steps are left out") for note in notes)

    samples, notes = logged_samples(log(tmp_path, [budget, *flood[1:], *others], pool=None))
    assert [row.source for row in samples.rows] == ["decode"]
    assert any(note.startswith("the other 9 are too few: no factor or time") for note in notes)
    _, notes = logged_samples(log(tmp_path, [*flood, *others], pool=None))
    assert any("19 of 19" in note and "does not say their budget" in note for note in notes)


def test_overlapping_steps_are_refused(tmp_path):
    lines = [step(at, second=at, running=4, ms=1900) for at in range(12)]
    with pytest.raises(InputError, match="overlap: asynchronous"):
        logged_samples(log(tmp_path, lines))
    with pytest.raises(InputError, match="says nothing of single steps"):
        logged_samples(log(tmp_path, []))


def test_fit_without_chunked_prompts_gives_no_prefill_context_cost():
    """A second chunk paid for what came before it, since both columns were one: +116 % TPOT."""
    samples = [
        Sample(StepShape((Chunk(new, 0),), 0, 0), 0.044 + 0.00027 * new)
        for new in range(100, 1000, 30)
    ] + [Sample(StepShape((), n, 500 * n), 0.044 + 0.0001 * n) for n in range(1, 30)]
    found = fit(samples, resamples=2)
    assert found.formula.terms.prefill_context_token_ps == 0
