"""Combinations of connector, drafts and stages schedule what `combinations.json` records.

It has a hash of the rows of all steps of seeded streams, and the message of each refused
combination. `python tests/engine/test_combinations.py` writes the file again. That is right only
for changes that intend to change schedules or that support a new combination.
"""

import hashlib
import json
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kvsim.engine.observer import Observer
from kvsim.engine.plan import Plan
from kvsim.engine.schedulers.scheduler import Scheduler
from kvsim.plumbing.errors import InputError
from kvsim.request import Request
from kvsim.scenario import Scenario
from kvsim.simulation import Simulation

RECORDED = Path(__file__).with_name("combinations.json")
# One block table; full attention beside windows; full attention beside recurrent states.
TABLES = {
    "one table": ("llama-3.1-8b", 90),
    "windows": ("gpt-oss-20b", 115),
    "states": ("qwen3-next-80b-a3b", 12),
}
PARTS = ("connector", "drafts", "stages", "async")
CELLS = [
    (tables, tuple(part for part, there in zip(PARTS, parts, strict=True) if there))
    for tables in TABLES
    for parts in product((False, True), repeat=len(PARTS))
]
SEEDS = {11: "fcfs", 12: "priority"}


def scenario_of(tables: str, parts: tuple[str, ...], policy: str) -> dict[str, Any]:
    """A pool of a few prompts, so that sequences are preempted and hits are taken elsewhere."""
    model, blocks = TABLES[tables]
    made: dict[str, Any] = {
        "model": {"name": model, "max_model_len": 2048},
        "device": {"name": "h200-141gb"},
        "memory": {"num_gpu_blocks": blocks},
        "allocator": [{"kind": "paged", "enable_prefix_caching": True}],
        "scheduler": {
            "kind": "continuous",
            "async_scheduling": "async" in parts,
            "max_num_seqs": 8,
            "max_num_batched_tokens": 640,
            "policy": policy,
        },
        "step_time": {"kind": "roofline"},
    }
    if tables == "states":
        made["model"]["tensor_parallel_size"] = 2
        if "drafts" in parts:  # a sequence has a state for each draft
            made["memory"]["num_gpu_blocks"] = blocks + 6
    if "stages" in parts:
        made["model"]["pipeline_parallel_size"] = 2
    if "drafts" in parts:
        made["speculative_config"] = {
            "method": "mtp" if tables == "states" else "eagle3",
            "num_speculative_tokens": 3,
            "acceptance_rate": 0.6,
        }
    if "connector" in parts:
        made["tier"] = [{"kind": "vllm-offloading", "kv_offloading_size": 4.0}]
    return made


def stream(seed: int) -> list[Request]:
    """Bursts and gaps, prompts with common prefixes, and conversations of several turns."""
    random = Random(seed)
    requests: list[Request] = []
    now_ps = 0
    for index in range(16):
        now_ps += random.choice((0, 10**8, 10**9, 10**10, 10**11))
        prompt, shared = random.randint(20, 700), random.randint(0, 400)
        runs = ((1 << 40, min(shared, prompt)), (index << 20, prompt - min(shared, prompt)))
        after = None
        if requests and random.random() < 0.3:
            before = requests[-1]
            assert before.prompt_runs is not None
            assert before.output_start is not None
            history = (*before.prompt_runs, (before.output_start, before.output_tokens))
            if sum(length for _, length in history) < 1200:
                after, prompt = before.id, random.randint(5, 300)
                runs = (*history, (index << 20, prompt))
                prompt = sum(length for _, length in runs)
        requests.append(
            Request(
                id=f"r{index}",
                arrival_ps=now_ps,
                prompt_tokens=prompt,
                output_tokens=random.randint(1, 180),
                priority=random.randint(0, 2),
                prompt_runs=runs,
                output_start=(1 << 50) + (index << 20),
                after=after,
                think_ps=10**10,
            )
        )
    return requests


class Rows(Observer):
    """Hashes what each step schedules, what it returns, and the ledger then."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def planned(self, scheduler: Scheduler, plan: Plan, now_ps: int) -> None:
        chunks = [
            (c.seq.id, c.new_tokens, c.prior_tokens, c.samples, c.end_tokens, c.drafts, c.accepted)
            for c in plan.chunks
        ]
        admitted = [(seq.id, tokens, again) for seq, tokens, again in plan.admitted]
        names = sorted(seq.id for seq in plan.passed_over), [seq.id for seq in plan.preempted]
        times = now_ps, plan.start_ps, 0 if plan.empty else plan.first_ps
        sums = plan.num_decode, plan.context_tokens, len(scheduler.running), len(scheduler.waiting)
        self._write(times, chunks, admitted, names, sums, tuple(scheduler.usage()))

    def finished(self, scheduler: Scheduler, plan: Plan, now_ps: int) -> None:
        self._write(now_ps, [seq.id for seq in plan.finishing], tuple(scheduler.usage()))

    def _write(self, *row: object) -> None:
        self._hash.update(repr(row).encode())

    def digest(self) -> str:
        return self._hash.hexdigest()[:16]


def rows_of(tables: str, parts: tuple[str, ...], seed: int, policy: str) -> str:
    """The digest of a stream's rows, one step at a time, and of what any run of it has: the times
    of requests and the sums of the ledger. The words, if it is refused.
    """
    made, requests, rows = scenario_of(tables, parts, policy), stream(seed), Rows()
    books = []
    try:
        for max_steps, observer in ((1, rows), (None, None)):
            scenario = Scenario.from_table({**made, "max_steps": max_steps} if max_steps else made)
            simulation = Simulation(scenario, requests)
            run = simulation.run(scenario.allocator[0], "run", observer=observer)
            recorder = run.recorder
            assert recorder is not None
            ends = [(seq.id, seq.first_token_ps, seq.hit_tokens) for seq in recorder.finished]
            sums = list(recorder.time_sum), list(recorder.step_sum)
            books.append(repr((ends, list(recorder.finish_ps), sums, recorder.steps)))
    except InputError as error:
        return str(error)
    assert books[0] == books[1]
    return f"{rows.digest()} {hashlib.sha256(books[0].encode()).hexdigest()[:16]}"


def name_of(cell: tuple[str, tuple[str, ...]]) -> str:
    """The name of a combination in combinations.json."""
    return ", ".join((cell[0], *cell[1]))


@pytest.mark.parametrize("cell", CELLS, ids=name_of)
def test_feature_combinations_run_or_refuse_as_recorded(cell: tuple[str, tuple[str, ...]]) -> None:
    recorded = json.loads(RECORDED.read_text(encoding="utf-8"))[name_of(cell)]
    found = [rows_of(*cell, seed, policy) for seed, policy in SEEDS.items()]
    assert found == (recorded if isinstance(recorded, list) else [recorded] * len(SEEDS))


def _written_down() -> dict[str, Any]:
    cells: dict[str, Any] = {}
    for cell in CELLS:
        found = [rows_of(*cell, seed, policy) for seed, policy in SEEDS.items()]
        refused = len(set(found)) == 1
        cells[name_of(cell)] = found[0] if refused else found
    return cells


if __name__ == "__main__":
    RECORDED.write_text(json.dumps(_written_down(), indent=1) + "\n", encoding="utf-8")
