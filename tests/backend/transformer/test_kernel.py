import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[2]

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="triton is not installed"
)


def run(script: str, **variables: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    environment = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"} | variables
    return subprocess.run(
        [sys.executable, HERE / script], env=environment, capture_output=True, text=True
    )


@pytest.mark.slow
def test_kernels_agree_with_gathering_under_the_interpreter():
    done = run("interpret.py", TRITON_INTERPRET="1")
    if "only 0-dimensional arrays can be converted" in done.stderr:
        pytest.skip("this triton's interpreter cannot loop over tensors with numpy >= 2.4")
    assert done.returncode == 0, done.stderr
    errors = json.loads(done.stdout)
    assert len(errors) == 20
    for case, error in errors.items():
        assert error <= (5e-3 if "float16" in case else 1e-6), case


def test_kernels_compile_for_sm90_without_spills():
    done = run("compile_sm90.py")
    assert done.returncode == 0, done.stderr
    for case in json.loads(done.stdout):
        assert case["spilled_bytes"] == 0, case
        assert case["registers"] <= 200, case
        if case["kernel"] == "attend":
            assert case["async_16_byte_loads"] > 0, case
        assert case["shared_bytes"] <= 227 * 1024, case
