"""A server with known step times, recorded under one load, and predicted under four others."""

import tomllib
from pathlib import Path
from typing import Any

import pytest
from support.live_server import LONGEST, StandIn, Truth, served, timeless

from kvsim.commands.record import workload_of_flags
from kvsim.interchange.imported import import_sources, write_imported
from kvsim.record.recording import RecordOptions, record
from kvsim.request import Stream
from kvsim.simulation import simulate
from kvsim.workload import WORKLOADS

TRUTH = Truth()
# Requests a second or users, prompt and output tokens. The first one is recorded.
RECORDED = workload_of_flags(rate=1.2, requests=80, prompt_tokens="150-900", output_tokens="20-120")
OTHERS = {
    "busier": workload_of_flags(
        rate=2.2, requests=80, prompt_tokens="150-900", output_tokens="20-120"
    ),
    "prompts in chunks": workload_of_flags(
        rate=0.5, requests=40, prompt_tokens="1800-3200", output_tokens="20-120"
    ),
    "chat": workload_of_flags(
        rate=1.5, requests=40, prompt_tokens="50-300", output_tokens="100-300"
    ),
    "users": workload_of_flags(
        users=16, requests=60, prompt_tokens="400-1600", output_tokens="50-150"
    ),
}
# Users who come at once: which prompts share the first step is decided by microseconds.
OTHERS["users"]["arrivals"]["ramp_s"] = 15.0


def stream(workload: dict[str, Any]) -> Stream:
    return WORKLOADS.parse(workload, "").stream(0, base=Path(), max_model_len=LONGEST)


@pytest.fixture(scope="module")
def scenario(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The server as it was recorded and imported, with its step log."""
    folder = tmp_path_factory.mktemp("recorded")

    async def recorded() -> str:
        stand_in = StandIn(TRUTH)
        async with stand_in.serving() as url:
            options = RecordOptions(
                url, folder / "run", lambda longest: stream(RECORDED), device="rtx-pro-6000", salt=1
            )
            found = await record(options, lambda done, total: None)
        assert found.answered == 80
        return stand_in.log()

    (folder / "server.log").write_text(timeless(recorded))
    sources = [str(folder / "run"), str(folder / "server.log")]
    out = folder / "mine.toml"
    imported = import_sources(sources, {"gpu": "rtx-pro-6000"}, out)
    write_imported(imported, out)
    assert any("steps of its log" in note for note in imported.notes)
    assert not any("left out" in note for note in imported.notes)
    return tomllib.loads(out.read_text())


def test_recorded_server_is_predicted_under_four_other_loads(scenario: dict[str, Any]) -> None:
    for name, workload in OTHERS.items():
        truth = timeless(lambda workload=workload: served(stream(workload), TRUTH))
        summary = simulate({**scenario, "workload": workload}).runs[0].summary
        assert summary.tpot_s.mean == pytest.approx(truth["tpot_s"], rel=0.04), name
        assert summary.ttft_s.mean == pytest.approx(truth["ttft_s"], rel=0.08), name
