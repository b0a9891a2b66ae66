"""Scenarios served for real: counts, clocks and files; never how fast this machine is."""

import json
import re
from itertools import pairwise
from typing import ClassVar

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from evidence.prove.replay import replay
from evidence.prove.step import Step
from kvsim.backend.devices.cpu import CpuDevice
from kvsim.backend.serve import setup
from kvsim.backend.serve.clock import CpuTimeClock, WallClock, run_clock
from kvsim.backend.serve.run import observe
from kvsim.backend.simulated.models import dtype_on, find_model
from kvsim.backend.simulated.shape import llama_shape
from kvsim.backend.simulated.stores import build_store
from kvsim.backend.transformer.decoder import Decoder
from kvsim.backend.transformer.runner import DecoderRunner
from kvsim.cli import COMMANDS, app
from kvsim.observed.content import BlockIds
from kvsim.observed.folder import ObservedRun
from kvsim.observed.rows import ObservedRequest
from kvsim.observed.steps import ScheduledStep
from kvsim.observed.writing import write_observation
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.units import PS_PER_MS
from kvsim.request import Request
from kvsim.scenario import Scenario
from kvsim.simulation import Simulation
from kvsim.step_time.calibrated.samples import read_samples
from kvsim.validate.run.steps import lock_step

CONFIG = {
    "_name_or_path": "tiny",
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "num_hidden_layers": 2,
    "hidden_size": 32,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 16,
    "vocab_size": 23,
    "max_position_embeddings": 128,
}
SCENARIO = """
[model]
hf_config = "tiny.json"
dtype = "float32"
max_model_len = 64
[device]
name = "this CPU"
memory_gib = 1
bandwidth_gb_per_s = 10
fp16_tflops = 0.01
[memory]
kv_cache_tokens = 208
[[allocator]]
kind = "paged"
block_size = 4
[[allocator]]
kind = "doubling"
initial_tokens = 8
[[allocator]]
kind = "max-buffer"
[scheduler]
kind = "continuous"
max_num_batched_tokens = 32
[workload]
kind = "synthetic"
num_requests = 14
[workload.arrivals]
kind = "poisson"
rate_per_s = 2000.0
[workload.prompt]
kind = "uniform"
min_tokens = 5
max_tokens = 30
[workload.output]
kind = "uniform"
min_tokens = 1
max_tokens = 30
[[workload.prefixes]]
tokens = { kind = "fixed", tokens = 6 }
count = 2
"""
LABELS = ("paged", "doubling", "max-buffer", "torch's own")
FILES = (
    *("meta.json", "requests.csv", "samples.jsonl", "steps.csv", "stream.jsonl"),
    "timeseries.csv",
)


@pytest.fixture(autouse=True, scope="module")
def threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scenario")
    (folder / "tiny.json").write_text(json.dumps(CONFIG))
    (folder / "scenario.toml").write_text(SCENARIO)
    return folder / "scenario.toml"


def loaded(path, label, *more):
    """Load the scenario; its pool is at least 2 MiB, the least that torch's allocator takes."""
    torch_own = (
        "allocator.1.label=torch's own",
        "allocator.1.placement=torch-caching",
        "memory.kv_cache_tokens=16384",
    )
    return Scenario.load(path, [*(torch_own if label == LABELS[-1] else ()), *more])


@pytest.fixture(scope="module", params=LABELS)
def made(request, path, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "run"
    observed = observe(loaded(path, request.param), "cpu", allocator=request.param, clock="cpu")
    write_observation(folder, *observed)
    return request.param, folder, observed


def test_observed_run_serves_all_requests_and_writes_its_folder(made, path):
    label, folder, (observation, meta) = made
    assert sorted(file.name for file in folder.iterdir()) == sorted(FILES)
    run = ObservedRun.read(folder)
    wanted = Simulation(loaded(path, label)).stream.requests
    assert [row.id for row in run.rows] == [request.id for request in wanted]
    for request, want in zip(run.requests, wanted, strict=True):
        assert (request.prompt_tokens, request.output_tokens) == (
            want.prompt_tokens,
            want.output_tokens,
        )
        assert request.prompt_runs == want.prompt_runs
        assert request.arrival_ps == pytest.approx(want.arrival_ps - wanted[0].arrival_ps, abs=1000)
    assert run.meta.label == meta.label == label
    assert run.steps == tuple(observation.steps)
    assert len(read_samples(folder / "samples.jsonl").rows) == len(run.steps)


def test_observed_step_and_request_times_are_ordered(made):
    _, folder, _ = made
    run = ObservedRun.read(folder)
    assert all(step.start_s < step.end_s for step in run.steps)
    assert all(one.end_s <= other.start_s for one, other in pairwise(run.steps))
    ends = {step.end_s for step in run.steps}
    for row in run.rows:
        assert row.arrival_s <= row.scheduled_s < row.first_token_s <= row.last_token_s
        assert min(abs(row.last_token_s - end) for end in ends) < 1e-8
    ticks = [tick.t for tick in run.ticks]
    assert ticks == sorted(set(ticks))
    assert run.ticks[-1].running == run.ticks[-1].waiting == 0


def test_observed_run_is_read_as_written(made):
    _, folder, (observation, meta) = made
    run = ObservedRun.read(folder)
    assert run.meta == meta
    assert run.rows == tuple(row for row, _ in observation.served())
    assert run.ticks == tuple(observation.ticks(meta.tick_seconds))
    assert run.steps == tuple(observation.steps)
    assert read_samples(folder / "samples.jsonl").rows == tuple(observation.samples())


def test_observed_run_ledger_sums_to_the_pool(made):
    label, folder, _ = made
    run = ObservedRun.read(folder)
    sampled = sum(row.output_tokens for row in run.rows)
    decoded = sum(step.decode_seqs for step in run.steps)
    preempted = sum(step.preempted for step in run.steps)
    # A prompt's last chunk samples a token, and so does what a sequence that resumes computes anew,
    # unless the cache had all but its last token: then it decodes.
    assert sampled - len(run.rows) - preempted <= decoded <= sampled - len(run.rows)
    if label in ("paged", "doubling"):
        assert preempted
    if label == "max-buffer":
        assert max(step.waiting for step in run.steps) > 5
    assert run.steps[-1].after_allocated_bytes == 0
    assert run.steps[-1].arrived == len(run.rows)
    token_bytes = run.meta.kv_bytes_per_token
    for step in run.steps:
        assert 0 < step.used_bytes <= step.allocated_bytes <= run.meta.capacity_bytes
        if label == "paged":
            assert step.allocated_bytes == step.blocks * 4 * token_bytes
        if label == "torch's own":  # a tensor a sequence, its bytes a multiple of 512
            assert step.store_requested_bytes == step.allocated_bytes
        else:
            assert step.store_reserved_bytes >= run.meta.capacity_bytes - 4 * token_bytes


def test_simulator_reproduces_observed_steps_in_lockstep(made):
    _, folder, _ = made
    run = ObservedRun.read(folder)
    found = lock_step(run)
    assert found.difference is None
    assert len(found.shapes) == len(run.steps)
    at = len(run.steps) // 2
    spoilt = run.steps[at].model_copy(update={"allocated_bytes": 1})
    spoilt_run = run._replace(steps=(*run.steps[:at], spoilt, *run.steps[at + 1 :]))
    difference = lock_step(spoilt_run).difference
    assert (difference.step, difference.figure, difference.recorded) == (at, "allocated_bytes", 1)


class Watched(DecoderRunner):
    """A runner that records every step it runs."""

    steps: ClassVar[list[Step]] = []

    def step(self, spans, moves=()):
        self.steps.append(Step(tuple(spans), tuple(moves)))
        return super().step(spans, moves)


@pytest.mark.parametrize("label", ["paged", "doubling"])
def test_swapped_sequences_go_to_host_memory_and_come_back(path, tmp_path, monkeypatch, label):
    monkeypatch.setattr(Watched, "steps", [])
    monkeypatch.setattr(setup, "DecoderRunner", Watched)
    swap = ("scheduler.preemption_mode='swap'", "allocator.0.enable_prefix_caching=false")
    observation, meta = observe(loaded(path, label, *swap), "cpu", allocator=label, clock="cpu")
    swapped = sum(step.swapped_bytes for step in observation.steps)
    assert swapped == meta.swapped_bytes > 0
    assert meta.recomputed_tokens == 0
    write_observation(tmp_path / "run", observation, meta)
    run = ObservedRun.read(tmp_path / "run")
    assert run.steps == tuple(observation.steps)
    assert lock_step(run).difference is None
    # The very steps that were served, on another store: logits as if nothing had ever moved.
    served = [step for step in Watched.steps if step.spans[0].id != "warm-up"]
    simulation = Simulation(loaded(path, label))
    allocator = simulation.scenario.allocator[simulation.labels.index(label)]
    decoder = Decoder(llama_shape(simulation.model))
    store = build_store(
        allocator.store, simulation.replica_spec(allocator).build().allocator, decoder.shape, "cpu"
    )
    found = replay(served, decoder, store)
    assert found.ok, found


class Told(DecoderRunner):
    """A runner that records the greedy token of each span, and when steps are launched."""

    tokens: ClassVar[dict] = {}
    events: ClassVar[list] = []

    def step(self, spans, moves=()):
        if spans[0].id != "warm-up":
            self.events.append("launch")
        logits = super().step(spans, moves)
        for span, token in zip(spans, logits.argmax(-1).tolist(), strict=True):
            self.tokens[span.id, span.context] = token
        return logits


@pytest.mark.parametrize("overlaps", [False, True], ids=["a CPU", "as a GPU"])
@pytest.mark.parametrize("label", ["paged", "doubling"])
def test_the_next_step_is_scheduled_before_tokens_are_read(
    path, tmp_path, monkeypatch, label, overlaps
):
    """Tokens equal those of steps run one by one; a GPU also launches the next step earlier."""

    def serve(*more):
        monkeypatch.setattr(Told, "tokens", {})
        monkeypatch.setattr(Told, "events", [])
        scenario = loaded(path, label, "workload.arrivals={kind='at-once'}", *more)
        return observe(scenario, "cpu", allocator=label, clock="cpu"), Told.tokens, Told.events

    def bring(device, numbers):
        number = Told.events.count("launch")
        return lambda: Told.events.append(f"read {number}")

    def of(plan, *rest):
        Told.events.append("schedule")
        return decided(plan, *rest)

    decided = ScheduledStep.of
    monkeypatch.setattr(setup, "DecoderRunner", Told)
    _, alone, _ = serve()
    monkeypatch.setattr(CpuDevice, "overlaps", overlaps)
    monkeypatch.setattr(CpuDevice, "bring", bring)
    monkeypatch.setattr(ScheduledStep, "of", of)
    (observation, meta), tokens, events = serve("scheduler.async_scheduling=true")
    assert meta.scheduler.async_scheduling
    prompts = {seq.id: seq.prompt_tokens for seq in observation.recorder.finished}

    def outputs(found):
        return {at: token for at, token in found.items() if at[1] >= prompts.get(at[0], 999)}

    assert outputs(tokens) == outputs(alone)
    assert len(outputs(alone)) == sum(seq.output_tokens for seq in observation.recorder.finished)
    steps = observation.steps
    reads = [events.index(f"read {number}") for number in range(1, 1 + len(steps))]
    assert reads == sorted(reads)
    ahead = [
        step for step, read in enumerate(reads[:-1]) if events[:read].count("schedule") == step + 2
    ]
    launched = [
        step for step, read in enumerate(reads) if events[:read].count("launch") == step + 2
    ]
    alone_steps = sum(step.alone_arrived is not None for step in steps)
    assert len(ahead) == len(steps) - 1 - alone_steps > 0.9 * len(steps)
    assert launched == (ahead if overlaps else [])
    assert sum(one.scheduled_s < two.end_s for two, one in pairwise(steps)) == len(ahead)
    write_observation(tmp_path / "run", observation, meta)
    run = ObservedRun.read(tmp_path / "run")
    assert run.steps == tuple(steps)
    assert all(one.end_s <= other.start_s for one, other in pairwise(steps))
    assert lock_step(run).difference is None
    spoilt = steps[5].model_copy(update={"after_allocated_bytes": 1})
    run = run._replace(steps=(*steps[:5], spoilt, *steps[6:]))
    assert lock_step(run).difference[:2] == (5, "after_allocated_bytes")


def test_follow_up_requests_arrive_after_their_predecessor(path, tmp_path):
    table = loaded(path, "paged").model_dump(mode="json", exclude_none=True)
    table["workload"] = {
        "kind": "sessions",
        "num_sessions": 4,
        "arrivals": {"kind": "at-once"},
        "turns": {"kind": "fixed", "tokens": 3},
        "prompt": {"kind": "fixed", "tokens": 6},
        "output": {"kind": "fixed", "tokens": 7},
        "think": {"kind": "fixed", "seconds": 0.25},
    }
    scenario = Scenario.from_table(table, path.parent)
    write_observation(tmp_path / "run", *observe(scenario, "cpu", allocator="paged", clock="cpu"))
    run = ObservedRun.read(tmp_path / "run")
    rows = {row.id: row for row in run.rows}
    assert len(rows) == 12
    for session in range(4):
        for turn in (1, 2):
            before, row = rows[f"s{session}.{turn - 1}"], rows[f"s{session}.{turn}"]
            assert row.arrival_s == pytest.approx(before.last_token_s + 0.25, abs=1e-8)
    # What was said before is in the cache: later turns compute less than their prompts.
    assert sum(step.prefill_tokens for step in run.steps) < sum(
        row.prompt_tokens for row in run.rows
    )
    assert lock_step(run).difference is None


def test_machine_pace_is_measured_in_thread_time(made, path):
    assert made[2][1].pace_s > 0
    assert observe(loaded(path, "paged"), "cpu", allocator="paged", limit=2).meta.pace_s is None


def test_request_that_can_never_run_is_refused_by_name(path, tmp_path):
    scenario = loaded(path, "paged", "memory.kv_cache_tokens=48")
    observation, meta = observe(scenario, "cpu", allocator="paged", clock="cpu")
    assert meta.refused
    assert {refused.id for refused in meta.refused}.isdisjoint(observation.arrived)
    assert "more KV blocks than the pool has" in meta.refused[0].reason
    write_observation(tmp_path / "run", observation, meta)
    assert lock_step(ObservedRun.read(tmp_path / "run")).difference is None


def test_tier_on_the_backend_is_refused_by_name(path):
    table = loaded(path, "paged").model_dump(mode="json", exclude_none=True)
    table["allocator"] = [each for each in table["allocator"] if each["kind"] == "paged"]
    table["tier"] = [{"kind": "vllm-offloading", "kv_offloading_size": 1}]
    with pytest.raises(InputError, match="from the device's memory alone"):
        observe(Scenario.from_table(table, path.parent), "cpu", allocator="paged", clock="cpu")


def test_fp8_weights_are_served_and_named(path):
    scenario = loaded(path, "paged", "model.quantization='fp8'")
    observation, meta = observe(scenario, "cpu", allocator="paged", clock="cpu", limit=3)
    assert len(observation.recorder.finished) == 3
    assert (meta.identity.dtype, meta.identity.quantization) == ("float32", "fp8")


def test_observe_without_a_served_request_is_an_error(path, tmp_path):
    scenario = loaded(path, "paged", "memory.kv_cache_tokens=8")
    with pytest.raises(InputError, match="no request was served"):
        write_observation(
            tmp_path / "run", *observe(scenario, "cpu", allocator="paged", clock="cpu")
        )
    assert not (tmp_path / "run").exists()


def test_observe_command_runs_by_the_wall_clock(path, tmp_path):
    out = tmp_path / "run"
    options = ["--out", str(out), "--allocator", "paged", "--limit", "3", "--json"]
    done = CliRunner().invoke(app, ["observe", str(path), *options])
    assert done.exit_code == 0, (done.output, done.exception)
    told = json.loads(done.stdout)
    assert (told["requests"], told["clock"]) == (3, "wall clock")
    run = ObservedRun.read(out)
    assert len(run.rows) == 3
    assert told["makespan_s"] == run.steps[-1].end_s
    assert lock_step(run).difference is None


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], r"which of the scenario's allocators.*give one of: paged, doubling"),
        (["--allocator", "pages"], r"--allocator: no such allocator.*got pages"),
        (["--allocator", "paged", "--clock", "sun"], r"--clock: no such clock; got sun"),
        (["--allocator", "paged", "--device", "tpu"], r"no such device here; got tpu"),
        (
            ["--allocator", "paged", "--set", "model.kv_cache_dtype='fp8'"],
            r"model: the backend keeps K and V in the model's own dtype",
        ),
        (
            ["--allocator", "paged", "--set", "model.quantization='int8'"],
            r"model: the backend computes weights in the model's own dtype, or in fp8; got tiny",
        ),
        (["--allocator", "paged", "--set", "workload.n=2"], r"one output a request; got 2 samples"),
        (
            [
                "--allocator",
                "concatenation",
                "--set",
                "allocator.1={kind='concatenation', placement='first-fit'}",
            ],
            r"allocator.kind: no backend store keeps memory in this way",
        ),
    ],
)
def test_unsupported_observation_is_a_one_line_error(path, tmp_path, options, words):
    done = CliRunner().invoke(app, ["observe", str(path), "--out", str(tmp_path / "x"), *options])
    assert isinstance(done.exception, InputError)
    assert "\n" not in str(done.exception)
    assert re.search(words, str(done.exception)), done.exception
    assert not (tmp_path / "x").exists()


def test_observe_help_example_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arguments = COMMANDS["observe"].example.split()
    assert arguments[:2] == ["kvsim", "observe"]
    # By the thread's time alone: nobody waits for arrivals.
    done = CliRunner().invoke(app, [*arguments[1:], "--clock", "cpu", "--json"])
    assert done.exit_code == 0, done.output
    summary = json.loads(done.stdout)
    assert summary["requests"] == 5
    # The same dtype as `kvsim calibrate` measures in on a CPU.
    assert summary["dtype"] == dtype_on("cpu", None) == "float32"
    assert find_model("small-llama", dtype_on("cpu", None)).build().torch_dtype == "float32"
    assert lock_step(ObservedRun.read(tmp_path / "out" / "observed")).difference is None


def test_run_clocks_never_go_back_and_wait_until_their_time():
    for clock in (WallClock(), CpuTimeClock()):
        then_ps = clock.now_ps() + 2 * PS_PER_MS
        clock.wait_until(then_ps)
        assert clock.now_ps() >= then_ps
        clock.wait_until(0)  # long over
        assert clock.now_ps() >= then_ps
    leaping = CpuTimeClock()
    leaping.wait_until(10**15)  # a quarter of an hour, at once
    assert leaping.now_ps() >= 10**15
    with pytest.raises(InputError, match="no such clock"):
        run_clock("cpu", "cuda")


runs = st.lists(st.tuples(st.integers(0, 30), st.integers(1, 9)), min_size=1, max_size=4)


@given(st.lists(runs, min_size=2, max_size=6), st.integers(1, 5))
def test_equal_token_ids_give_equal_prompt_prefixes(prompts, block_size):
    ids = BlockIds(block_size)
    seen = {}
    for number, prompt in enumerate(prompts):
        tokens = [start + at for start, length in prompt for at in range(length)]
        request = Request(str(number), 0, len(tokens), 1, prompt_runs=tuple(prompt))
        blocks = ids.of(request)
        assert len(blocks) == -(-len(tokens) // block_size)
        for at, block in enumerate(blocks):
            known = tuple(tokens[: (at + 1) * block_size])
            assert seen.setdefault(block, known) == known
    assert len(set(seen.values())) == len(seen)
    assert ids.of(Request("private", 0, 9, 1)) is None


@given(runs)
def test_prompt_runs_are_written_as_text(runs):
    total = sum(length for _, length in runs)
    row = ObservedRequest(
        id="r", arrival_s=0, prompt_tokens=total, output_tokens=1, first_token_s=1,
        last_token_s=1, prompt_runs=tuple(runs),
    )  # fmt: skip
    text = row.model_dump()["prompt_runs"]
    assert text.split()[0] == f"{runs[0][0]}+{runs[0][1]}"
    assert ObservedRequest.parse(row.model_dump(), "row") == row
