"""The commands of `kvsim validate` that are implemented in evidence/."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import kvsim

CHECKOUT = Path(kvsim.__file__).parents[1]


@pytest.mark.skipif(not (CHECKOUT / "evidence").is_dir(), reason="kvsim is installed, no checkout")
def test_validate_commands_run_from_any_folder_with_an_editable_install(tmp_path: Path) -> None:
    """With an editable install kvsim is on sys.path, but the checkout's folder is not."""
    code = f"""
import importlib.util, sys
place = {str(CHECKOUT / "kvsim")!r}
spec = importlib.util.spec_from_file_location("kvsim", place + "/__init__.py",
                                              submodule_search_locations=[place])
module = sys.modules["kvsim"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
sys.path = [folder for folder in sys.path if folder != {str(CHECKOUT)!r}]
from kvsim.cli import main
sys.argv = ["kvsim", "validate", "cache", "--device", "tpu"]
main()
"""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "device: no such device here" in done.stderr
