"""The fuzz campaign and the soak: they resume, save failures, and detect growth."""

import json
import sys
from pathlib import Path

import pytest
from support import soak
from support.fuzzing import campaign
from support.fuzzing.targets import TARGETS


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The folder of a fuzz campaign of one reader."""
    words = ["campaign", "--only", "lengths", "--cases", "20", "--keep", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", words)
    return tmp_path


def test_fuzz_campaign_resumes_after_its_last_case(
    asked: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert campaign.main() == 0
    assert campaign.main() == 0
    told = json.loads((asked / "counts.json").read_text())["lengths"]
    assert told["cases"] == 40 == told["read"] + told["refused"]
    assert told["read"]
    assert told["refused"]
    assert "20 cases" in capsys.readouterr().out
    # The second twenty were others: some file is not among the first.
    first, second = ({campaign.case("lengths", n + k) for n in range(20)} for k in (0, 20))
    assert second - first


def test_fuzz_campaign_saves_one_case_per_distinct_failure(
    asked: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(path: Path) -> None:
        raise RecursionError(path.name)

    monkeypatch.setitem(TARGETS, "lengths", TARGETS["lengths"]._replace(read=fails))
    assert campaign.main() == 1
    assert (asked / "lengths" / "0").read_bytes() == campaign.case("lengths", 0)
    assert "--- lengths:0 RecursionError" in capsys.readouterr().out
    assert [path.name for path in (asked / "lengths").iterdir()] == ["0"]
    assert json.loads((asked / "counts.json").read_text())["lengths"]["faults"] == 20


def test_soak_prints_each_part_as_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    parts, out = len(soak.BOOKS), tmp_path / "soak.json"
    words = ["soak", "--requests", str(200 * parts), "--parts", str(parts), "--scenarios", "2"]
    monkeypatch.setattr(sys, "argv", [*words, "--out", str(out)])
    soak.main()
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [part.get("books") for part in told] == [*soak.BOOKS, *soak.BOOKS, None]
    assert told[-1]["ran"] + told[-1]["refused"] == 2
    assert json.loads(out.read_text()) == {"parts": told[:-1], "scenarios": told[-1]}


def test_soak_repeats_give_equal_ledgers() -> None:
    parts = list(soak.soak(1000 * 2 * len(soak.BOOKS), 2 * len(soak.BOOKS)))
    assert [part["books"] for part in parts] == [*soak.BOOKS] * 3
    assert soak.grown(parts) == []
    assert all(part["ledger_apart"] < 1e-12 for part in parts)
    # They are under pressure: what is looked for happens.
    hashed, buffers = (
        next(p for p in parts if p["books"] == name) for name in ("hashed", "buffers")
    )
    assert hashed["hit_tokens"]
    assert buffers["preemptions"]
    parts[-1]["held_blocks"] += 2 * soak.MOST_MORE_BLOCKS
    assert len(soak.grown(parts)) == 1
