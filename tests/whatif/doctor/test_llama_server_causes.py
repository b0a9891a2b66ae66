"""Causes of llama-server are suspected on servers that have them, and not once they are cured."""

from pathlib import Path

import pytest

from kvsim.scenario import load_tables
from kvsim.whatif.doctor.causes import CAUSES
from kvsim.whatif.doctor.examined_run import ExaminedRun
from kvsim.whatif.doctor.subject import subject_of

SERVERS = Path(__file__).parent / "servers"


@pytest.mark.parametrize("name", ["full-windows", "slot-similarity", "small-prompt-cache"])
def test_llama_server_cause_is_suspected_only_without_its_cure(name: str) -> None:
    table, folder = load_tables(SERVERS / f"{name}.toml")
    subject = subject_of(table, folder, None, 120, 12)
    cause, sick = CAUSES.get(name)(), ExaminedRun(subject.table, folder)
    suspicion = cause.suspect(sick)
    assert suspicion is not None
    cured = [ExaminedRun(cure.put(subject.table), folder) for cure in suspicion.cures]
    best = max(cured, key=lambda run: run.hit_share)
    assert cause.suspect(best) is None
    assert best.hit_share > sick.hit_share + 0.05


def test_llama_server_held_and_lost_tokens_add_up() -> None:
    """The counts never exceed the prompt's tokens; if host memory has space for everything, no
    computed token is lost.
    """
    table, folder = load_tables(SERVERS / "small-prompt-cache.toml")
    subject = subject_of(table, folder, None, 120, 12)
    for limit, dropped in ((512, True), (65536, False)):
        server = {**subject.table["scheduler"], "cache_ram": limit}
        slots = ExaminedRun({**subject.table, "scheduler": server}, folder).slots
        assert slots is not None
        found = slots.elsewhere_tokens + slots.lost_tokens
        assert 0 <= found <= slots.prompt_tokens
        assert bool(slots.num_dropped) == dropped
        assert (slots.lost_tokens > 0.05 * slots.prompt_tokens) == dropped


def test_slot_watch_is_absent_for_other_engines() -> None:
    table, folder = load_tables(SERVERS / "evicted-prefixes.toml")
    case = ExaminedRun(subject_of(table, folder, None, 120, 12).table, folder)
    assert case.slots is None
    for name in ("full-windows", "slot-similarity", "small-prompt-cache"):
        assert CAUSES.get(name)().suspect(case) is None
