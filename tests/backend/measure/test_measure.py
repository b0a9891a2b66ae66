import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from evidence.session.files import write_samples
from kvsim.backend.devices.cpu import CpuDevice
from kvsim.backend.measure import host
from kvsim.backend.measure import measure as measuring
from kvsim.backend.measure.bench import Bench
from kvsim.backend.measure.grid import CPU, CUDA, DESIGNS, StepPlan, grid
from kvsim.backend.measure.host import Watch
from kvsim.backend.measure.log import Log
from kvsim.backend.measure.measure import measure
from kvsim.backend.measure.sentinel import judge
from kvsim.backend.measure.setup import Setup
from kvsim.backend.measure.summary import impossible, samples_of_log
from kvsim.backend.measure.timing import CpuClock
from kvsim.backend.shape import Shape
from kvsim.backend.transformer.attentions import ATTENTIONS, attention_kind
from kvsim.plumbing.errors import InputError
from kvsim.step_time.calibrated.samples import read_samples

ROOT = Path(__file__).parents[3]
SHAPE = Shape(1, 16, 2, 1, 16, 16, 11)
PLANS = [
    StepPlan((), (5, 9)),
    StepPlan(((7, 3),), ()),
    StepPlan(((4, 0), (2, 6)), (3,), "held-out"),
]


def test_measuring_modules_import_only_torch_and_numpy():
    code = """
import sys, torch, numpy.random, torch.utils.flop_counter
before = set(sys.modules)
import evidence.session.measure, evidence.session.__main__
import evidence.prove.captured, evidence.prove.random_steps
new = set(sys.modules) - before
tops = {name.partition('.')[0] for name in new} - sys.stdlib_module_names - {'kvsim', 'evidence'}
known = ('kvsim.backend', 'evidence.session')
own = {name for name in new if name.startswith('kvsim.') and not name.startswith(known)}
print(sorted(name for name in tops if name not in ('torch', 'numpy')), sorted(own))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    plain = [
        f"kvsim.{name}"
        for name in (
            *(
                "compiled",
                "plumbing",
                "plumbing.errors",
                "plumbing.reading",
                "plumbing.reading.files",
            ),
            *("plumbing.reading.json_text", "plumbing.writing", "version"),
        )
    ]
    assert done.stdout.strip() == f"[] {plain}"


@pytest.mark.parametrize("design", DESIGNS)
def test_measurement_grid_keeps_its_limits_and_has_decode_prefill_and_mixed_plans(design):
    limits, _ = DESIGNS[design]
    plans = grid(limits)
    assert len(plans) == len(set(plans))
    assert {plan.kind for plan in plans} == {"decode", "prefill", "mixed"}
    assert max(plan.cache_tokens for plan in plans) <= limits.pool_tokens
    assert max(plan.step_tokens for plan in plans) <= limits.step_tokens


def test_grid_has_both_edges_of_every_gemm_tile():
    for limits in (CPU, CUDA):
        alone = {plan.chunks[0][0] for plan in grid(limits) if len(plan.chunks) == 1}
        assert {edge for tile in range(64, 769, 64) for edge in (tile, tile + 1)} <= alone


@pytest.mark.parametrize("graphs", [False, True])
@pytest.mark.parametrize("store", ["paged", "contiguous"])
def test_bench_allocates_disjoint_slots_to_spans(store, graphs):
    bench = Bench(
        SHAPE,
        "cpu",
        PLANS,
        block_size=4,
        graphs=graphs,
        seed=0,
        store=store,
        attention="reference" if graphs else None,
    )
    assert (bench.plans, bench.dropped) == (PLANS, [])
    for plan in PLANS:
        spans = bench.spans(plan)
        slots = [slot for span in spans for slot in range(span.slot, span.slot + span.context)]
        assert len(set(slots)) == len(slots)
        assert max(slots) < bench.store.pool.num_slots
        blocks = [block for span in spans for block in span.blocks]
        assert len(set(blocks)) == len(blocks)
        assert 0 not in blocks
        assert [(len(span.tokens), span.context) for span in spans] == [
            *((new, new + prior) for new, prior in plan.chunks),
            *((1, context) for context in plan.contexts),
        ]
        logits = bench.work(plan)()
        assert torch.equal(logits, bench.work(plan)())  # any number of times
        assert logits.shape == (len(spans), SHAPE.vocab)
        assert logits.isfinite().all()


def test_cpu_time_does_not_count_waiting():
    waiting = CpuClock(0.05).time(lambda: time.sleep(0.02))
    assert waiting.seconds < 0.005

    def busy():
        end = time.thread_time_ns() + 2_000_000
        while time.thread_time_ns() < end:
            pass

    working = CpuClock(0.05).time(busy)
    assert 0.002 <= working.min_s <= working.seconds <= working.p90_s
    assert working.n >= 3


def test_measured_samples_are_readable_by_the_fit(tmp_path):
    path = tmp_path / "samples.jsonl"
    measured = measure(Setup(SHAPE, rounds=2, block_size=4), PLANS, tmp_path / "log.jsonl")
    write_samples(path, measured)
    rows = read_samples(path).rows
    assert [row.kind for row in rows] == ["decode", "prefill", "mixed"]
    assert [row.source for row in rows] == ["grid", "grid", "held-out"]
    mixed = rows[2].sample().shape
    assert (mixed.prefill_tokens, mixed.num_decode, mixed.context_tokens) == (6, 1, 3)
    assert rows[0].decode_context_tokens == 14
    assert rows[0].decode_context_max == 9
    assert all(row.seconds_min <= row.seconds <= row.seconds_p90 for row in rows)
    facts = json.loads(path.with_suffix(".facts.json").read_text())
    assert facts["model"]["kv_bytes_per_token"] == SHAPE.kv_bytes_per_token
    assert facts["ceilings"]["copy_bytes_per_s"] > 1e8
    assert facts["ceilings"]["read_bytes_per_s"] > 1e8
    assert facts["sentinel"]["n"] == 1
    assert 0 < facts["device"]["core_share"] <= 1.01
    assert facts["method"]["dropped"] == []
    assert {item.name for item in tmp_path.iterdir()} == {
        "samples.jsonl",
        "samples.facts.json",
        "log.jsonl",
    }


def test_stopped_measurement_resumes(tmp_path):
    path = tmp_path / "log.jsonl"
    setup = Setup(SHAPE, rounds=2, block_size=4)

    def stop(done, total):
        assert total == 6
        if done == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measure(setup, PLANS, path, stop)
    kept = Log.open(path, setup.as_dict()).rows
    assert len(kept) == 4
    # The log alone gives the finished round's samples, and their facts.
    first = samples_of_log(path)
    assert [row["repeats"] for row in first.rows] == [
        sum(row.timing.n for row in kept if row.plan == plan and row.turn == 0) for plan in PLANS
    ]
    assert first.facts["method"]["rounds"] == 1
    assert 0 < first.facts["device"]["core_share"] <= 1.01
    with path.open("a") as file:
        file.write('{"timing": {"sec')  # the machine stopped in the middle of a line
    calls = []
    measured = measure(setup, PLANS, path, lambda done, total: calls.append(done))
    assert calls == [5, 6]
    log = Log.open(path, setup.as_dict())
    assert log.rows[:4] == kept
    assert len(log.done) == 6
    assert [row["repeats"] for row in measured.rows] == [
        sum(row.timing.n for row in log.rows if row.plan == plan) for plan in PLANS
    ]
    # Nothing is left to do: the same rows again, to the last bit.
    assert measure(setup, PLANS, path).rows == measured.rows


def test_samples_of_an_unfinished_round_carry_a_warning(tmp_path):
    path = tmp_path / "log.jsonl"

    def stop(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measure(Setup(SHAPE, rounds=2, block_size=4), PLANS, path, stop)
    found = samples_of_log(path)
    assert (len(found.rows), found.facts["method"]["rounds"]) == (1, 0)
    assert "no round was finished: 1 of 3 steps were timed" in found.facts["method"]["warnings"]
    path.write_text(path.read_text().splitlines(keepends=True)[0])
    with pytest.raises(InputError, match="nothing was timed yet"):
        samples_of_log(path)


def test_measurement_log_of_another_setup_is_refused(tmp_path):
    path = tmp_path / "log.jsonl"
    measure(Setup(SHAPE, rounds=1), PLANS[:1], path)
    with pytest.raises(InputError, match="another setup"):
        measure(Setup(SHAPE, rounds=1, seed=1), PLANS[:1], path)
    path.write_text("hello\n")
    with pytest.raises(InputError, match=r"log\.jsonl:1"):
        measure(Setup(SHAPE, rounds=1), PLANS[:1], path)


class Full(Bench):
    """A device with memory for most steps, which runs out of memory in one."""

    def _room_bytes(self):
        return 1 << 17

    def work(self, plan):
        if plan.chunks:
            raise torch.OutOfMemoryError("no room")
        return super().work(plan)


def test_steps_too_large_for_device_memory_are_dropped_and_listed(tmp_path, monkeypatch):
    path = tmp_path / "log.jsonl"
    setup = Setup(SHAPE, rounds=2, block_size=4)
    plans = [*PLANS, StepPlan((), (5000,))]
    monkeypatch.setattr(measuring, "Bench", Full)
    measured = measure(setup, plans, path)
    assert [row["kind"] for row in measured.rows] == ["decode"]
    dropped = measured.facts["method"]["dropped"]
    assert {(tuple(one["contexts"]), one["why"].split()[-1]) for one in dropped} == {
        ((5000,), "it"),
        ((), "memory"),
        ((3,), "memory"),
    }
    # Nor is it tried again: nothing is left to do.
    monkeypatch.undo()
    assert measure(setup, plans, path).rows == measured.rows


def test_a_step_without_memory_for_its_graph_is_dropped(tmp_path, monkeypatch):
    capture = CpuDevice.capture

    def full(self, work, pool):
        if work.__self__.size.chunks:
            raise torch.OutOfMemoryError("no room")
        return capture(self, work, pool)

    monkeypatch.setattr(CpuDevice, "capture", full)
    setup = Setup(SHAPE, rounds=1, block_size=4, graphs=True, attention="reference")
    measured = measure(setup, PLANS, tmp_path / "log.jsonl")
    assert [row["kind"] for row in measured.rows] == ["decode"]
    assert len(measured.facts["method"]["dropped"]) == 2
    assert measured.facts["backend"]["kernel"] == ATTENTIONS["reference"].kernel


def test_unavailable_attention_is_refused_and_available_ones_listed():
    assert attention_kind(None, "cpu") is None
    assert attention_kind("gather", "cuda") == "gather"
    with pytest.raises(InputError, match="one of: gather, sdpa, triton, flash-attn, "):
        attention_kind("flash", "cuda")
    with pytest.raises(InputError, match="need a GPU; got flash-attn; one of: gather, sdpa"):
        attention_kind("flash-attn", "cpu")
    with pytest.raises(InputError, match=r"needs flash_attn.* not installed here; got flash-attn"):
        attention_kind("flash-attn", "cuda")


def test_sentinel_detects_a_machine_that_changed_speed():
    assert judge([1.0, 1.01, 0.99, 1.0, 1.01, 1.0], on_gpu=True).steady
    slower = judge([1.0, 1.0, 1.1, 1.1, 1.2, 1.2], on_gpu=True)
    assert not slower.steady
    assert slower.drift == pytest.approx(0.2)
    assert "+20 %" in slower.warnings()[0]
    assert judge([1.0, 1.05, 1.1, 1.0, 1.1, 1.05], on_gpu=False).steady
    assert judge([2.0], on_gpu=True) == (1, 2.0, 2.0, 2.0, 0.0, 0.0, True)


def test_sharing_a_core_with_another_thread_is_warned_about():
    watch = Watch("cpu")
    time.sleep(0.2)
    facts = watch.facts()
    assert facts["core_share"] < 0.5
    assert "had a core for" in host.state_warnings("cpu", facts)[0]


SMI = """#!{python}
import sys
assert "--id=GPU-a1" in sys.argv
print("{said}")
"""


@pytest.mark.parametrize(
    ("said", "warned"),
    [
        ("580.1, 1980, 2619, 1980, 690.2, 55", []),
        ("580.1, 1410, 2619, 1980, 690.2, 83", ["under load the GPU's clock is 71 % of its"]),
        ("580.1, [N/A], 2619, [N/A], [N/A], 55", ["nvidia-smi does not tell the clocks"]),
        ("No devices were found", ["nvidia-smi does not tell the clocks"]),
    ],
)
def test_gpu_clocks_under_load_decide_the_warnings(tmp_path, monkeypatch, said, warned):
    program = tmp_path / "nvidia-smi"
    program.write_text(SMI.format(python=sys.executable, said=said))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    found = host._clock_warnings({"under_load": host._nvidia_smi("a1")})
    assert [word[: len(start)] for word, start in zip(found, warned, strict=True)] == warned


def test_times_faster_than_memory_are_impossible():
    llama = Shape(32, 4096, 32, 8, 128, 14336, 128256, "bfloat16")
    plan = StepPlan((), (1024,) * 8)
    # 13.96 GB of weights and 1.07 GB of cache take 3.5 ms at 4.3 TB/s.
    assert impossible(llama, plan, 3.2e-3, 4.3e12)
    assert not impossible(llama, plan, 3.6e-3, 4.3e12)


@pytest.mark.parametrize(
    "line", ["{}", "[1]", '{"chunks": [[0, 1]]}', '{"contexts": [0]}', '{"chunks": [3]}', "x"]
)
def test_invalid_measured_step_is_a_one_line_error(tmp_path, line):
    config = tmp_path / "config.json"
    config.write_text(
        json.dumps(
            {
                "num_hidden_layers": 1,
                "hidden_size": 16,
                "num_attention_heads": 2,
                "intermediate_size": 16,
                "vocab_size": 11,
            }
        )
    )
    steps = tmp_path / "steps.jsonl"
    steps.write_text(line + "\n")
    from evidence.session.files import read_plans

    with pytest.raises(InputError, match=r"steps\.jsonl:1"):
        read_plans(steps)


def test_command_without_torch_names_the_fault(tmp_path):
    command = [sys.executable, "-m", "evidence.session.measure", tmp_path / "none.json"]
    done = subprocess.run(
        [*command, "--out", tmp_path / "samples.jsonl"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert len(done.stderr.splitlines()) == 1
    assert not list(tmp_path.iterdir())
