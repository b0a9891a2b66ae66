"""Notes on single runs are kept when many runs are summarised."""

import json
from pathlib import Path
from typing import Any

from support.chats import chats

from kvsim.whatif.notes import noted
from kvsim.whatif.task import make_task, run_task


def test_notes_of_one_kind_are_merged_and_counted() -> None:
    def row(*texts: str) -> dict[str, Any]:
        return {"notes": json.dumps([{"about": "step-time", "text": text} for text in texts])}

    said = noted([row("3 of 9 steps."), row("1,004 of 2,000 steps."), row("Other.")])
    assert said == [
        "2 of 3 runs; the first such run: 3 of 9 steps.",
        "1 of 3 runs; the first such run: Other.",
    ]
    assert noted([{"notes": None}, {}]) == []


def test_dropped_requests_and_useless_caches_are_noted(tables: Any) -> None:
    table = chats(tables)
    rows = [run_task(make_task({**table, "seed": seed}, Path())).rows[0] for seed in range(2)]
    said = noted(rows)
    assert any("prompt tokens hit; this workload has no shared prefixes" in line for line in said)
    assert all(line.startswith("All 2 runs; the first such run: ") for line in said)
    sessions = {
        "kind": "sessions", "num_sessions": 4, "max_context": 300,
        "arrivals": {"kind": "poisson", "rate_per_s": 1.0},
        "turns": {"kind": "fixed", "tokens": 6}, "prompt": {"kind": "fixed", "tokens": 90},
        "output": {"kind": "fixed", "tokens": 30}, "think": {"kind": "exponential", "mean_s": 1.0},
    }  # fmt: skip
    task = make_task({**table, "workload": sessions}, Path())
    (line,) = [line for line in noted(run_task(task).rows) if line.startswith("Requests: ")]
    assert "left out" in line


def test_note_on_zero_hits_names_evicted_shared_prefixes(
    tables: Any,
) -> None:
    workload = {
        "kind": "synthetic", "num_requests": 3, "prompt": {"kind": "fixed", "tokens": 20},
        "output": {"kind": "fixed", "tokens": 4},
        "arrivals": {"kind": "poisson", "rate_per_s": 1.0},
        "prefixes": [{"tokens": {"kind": "fixed", "tokens": 100}}],
    }  # fmt: skip
    allocator = [{"kind": "paged", "block_size": 128}]
    (row,) = run_task(make_task(tables(workload=workload, allocator=allocator), Path())).rows
    (said,) = noted([row])
    assert "fill no whole block, or were evicted" in said
