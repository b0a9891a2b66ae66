"""What is not installed is named with the line that installs it, before anything is computed."""

import sys
import tomllib
from pathlib import Path

import pytest

from kvsim import cli
from kvsim.plumbing import extras
from kvsim.plumbing.errors import InputError

ROOT = Path(__file__).parents[2]


def test_every_extra_is_declared_with_its_library_in_pyproject() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for library, extra in extras.EXTRAS.items():
        named = declared["optional-dependencies"][extra]
        assert any(each.partition(">=")[0].partition("==")[0] == library for each in named)
        assert not any(each.startswith(f"{library}>") for each in declared["dependencies"])


def test_missing_library_error_gives_the_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"--out: plotly is not .*pip install 'kvsim\[report\]'"):
        extras.need("plotly", where="--out")


def test_command_without_its_library_is_a_one_line_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def without_scipy(names: object) -> object:
        raise ModuleNotFoundError("No module named 'scipy'", name="scipy.optimize")

    monkeypatch.setattr(cli, "make_app", without_scipy)
    monkeypatch.setattr(sys, "argv", ["kvsim", "run"])
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code == 2
    assert capsys.readouterr().err == ("error: scipy is not installed; pip install 'kvsim[fit]'\n")
