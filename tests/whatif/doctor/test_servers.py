"""The doctor names the planted cause of made-up servers, and finds none in healthy ones.

The first line of each server's file names the cause. The three healthy servers and ten others were
written before the doctor could examine any server.
"""

from pathlib import Path

import pytest
from support.pairs import is_whole

from kvsim.scenario import load_tables
from kvsim.whatif.backends import BACKENDS
from kvsim.whatif.doctor.causes import CAUSES
from kvsim.whatif.doctor.diagnosis import Diagnosis
from kvsim.whatif.doctor.examine import Doctor
from kvsim.whatif.doctor.subject import subject_of
from kvsim.whatif.runner import TaskRunner

SERVERS = {path.stem: path for path in sorted((Path(__file__).parent / "servers").glob("*.toml"))}


def planted(name: str) -> str:
    """The cause in the first line of the server's file."""
    return SERVERS[name].read_text().splitlines()[0].removeprefix("# planted: ")


TROUBLED = [name for name in SERVERS if planted(name) != "none"]
HEALTHY = [name for name in SERVERS if planted(name) == "none"]
# Half a minute each: the suite examines every sixth, `make soak` all of them.
EVERY = 1 if is_whole() else 6


def examined(name: str) -> Diagnosis:
    table, folder = load_tables(SERVERS[name])
    runner = TaskRunner(BACKENDS.get("processes")(jobs=1))
    return Doctor(subject_of(table, folder, None, 1000, 12), runner).diagnose()


def test_every_doctor_cause_has_an_example_server() -> None:
    assert {planted(name) for name in TROUBLED} == set(CAUSES.own)
    assert len(HEALTHY) == 3


@pytest.mark.slow
@pytest.mark.parametrize("name", TROUBLED[::EVERY])
def test_doctor_names_the_planted_cause(name: str) -> None:
    diagnosis = examined(name)
    assert planted(name) in {each.name for each in diagnosis.causes}
    assert not diagnosis.healthy
    # What is told is of requests that neither search nor test has seen.
    assert diagnosis.together is not None
    assert diagnosis.together.helps


@pytest.mark.slow
@pytest.mark.parametrize("name", HEALTHY[::EVERY])
def test_doctor_calls_a_healthy_server_healthy(name: str) -> None:
    diagnosis = examined(name)
    assert diagnosis.causes == ()
    assert diagnosis.healthy
