import json

import pytest
from typer.testing import CliRunner

from evidence.cache import checks as cache
from evidence.cache import command
from kvsim.cli import app


@pytest.mark.slow
def test_validate_cache_command_passes_every_check():
    done = CliRunner().invoke(app, ["validate", "cache", "--schedules", "1", "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["ok"]
    sound = [check for check in found["equality"] if check["allocator"] == "sound"]
    assert {(check["store"], check["dtype"]) for check in sound} == {
        (store, dtype)
        for store in ("paged", "max-buffer", "doubling", "buffers")
        for dtype in ("float64", "float32", "bfloat16")
    }
    assert {check["tolerance"] for check in sound} == {1e-12, 1e-4, 6e-2}
    assert {check["store"] for check in found["replayed"]} == {"paged", "max-buffer", "doubling"}
    assert all(check["rows"] > 50 for check in found["replayed"])
    assert len(found["simulated"]) >= 10
    assert all(check["rows"] > 300 for check in found["simulated"])
    assert all(check["flop"] == check["flop_formula"] for check in found["work"])
    expected = {check["rule"]: check["expected"] for check in found["exactness"]}
    assert list(expected.values()) == ["equal", "different", "equal", "different", "equal"]


def test_validate_cache_command_fails_if_a_check_fails(monkeypatch):
    bad = cache.ExactnessCheck("a rule", 1.0, "equal", 0.5, False)
    work = cache.WorkCheck("a scheme", 4, 1, 1, 1, 1, 0.0, True)
    lost = cache.EqualityCheck("paged", "float64", "sound", 3, float("nan"), 1e-12, False)
    report = cache.CacheReport("cpu", (lost,), (), (), (work,), (bad,))
    monkeypatch.setattr(cache, "validate_cache", lambda *_: report)
    done = CliRunner().invoke(app, ["validate", "cache"])
    assert done.exit_code == 1
    assert "FAILED" in done.output
    assert command.as_object(report)["equality"][0]["error"] is None


def test_missing_torch_device_is_refused():
    done = CliRunner().invoke(app, ["validate", "cache", "--device", "tpu"])
    assert "no such device" in str(done.exception)
