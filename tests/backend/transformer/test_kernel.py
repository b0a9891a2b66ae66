import importlib.util
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from support.pairs import pairs

HERE = Path(__file__).parent
ROOT = HERE.parents[2]

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="triton is not installed"
)


# Group sizes that are and are not powers of two; with and without splits of the keys. Programs
# of 16 bits differ from those of 32 in how they load and round, not in which keys they read.
GROUPS = [[4, 2], [3, 1]]
STORES = ["paged", "contiguous", "buffers", "recompute"]
CASES = [
    [*group, store, dtype, programs]
    for group, store, dtype, programs in (
        case.values
        for case in pairs(
            GROUPS,
            STORES,
            ["float32", "float16"],
            [1, 16],
            allowed=lambda group, _, dtype, programs: (
                dtype == "float32" or (group, programs) == ([4, 2], 16)
            ),
        )
    )
]


def run(script: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    environment = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"} | variables
    return subprocess.run(
        [sys.executable, HERE / script, *arguments], env=environment, capture_output=True, text=True
    )


@pytest.mark.slow
def test_kernels_agree_with_gathering_under_the_interpreter():
    done = run("interpret.py", json.dumps(CASES), TRITON_INTERPRET="1")
    if "only 0-dimensional arrays can be converted" in done.stderr:
        pytest.skip("this triton's interpreter cannot loop over tensors with numpy >= 2.4")
    assert done.returncode == 0, done.stderr
    errors = json.loads(done.stdout)
    assert len(errors) == len(CASES)
    for case, error in errors.items():
        assert error <= (5e-3 if "float16" in case else 1e-6), case


TOLERANCES = {"float32": 1e-6, "float16": 2e-3, "bfloat16": 1.2e-2}  # by a dtype's last bit


@pytest.mark.slow
def test_fused_kernels_are_exact_and_a_layer_has_ten_launches():
    done = run("interpret_between.py", TRITON_INTERPRET="1")
    if "only 0-dimensional arrays can be converted" in done.stderr:
        pytest.skip("this triton's interpreter cannot loop over tensors with numpy >= 2.4")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    for case, error in found["errors"].items():
        assert error <= TOLERANCES[case.rpartition(" ")[2]], case
    assert {case.rpartition(" ")[0] for case in found["errors"]} == {
        *("norm", "add_norm", "gate", "narrow", "scale"),
        *("turned query", "cached key", "cached value", "llama decoder", "qwen decoder"),
    }
    # Of a decode step whose keys are split: twenty before anything was fused.
    llama = {"add_norm": 2, "linear": 4, "rotate_write": 1, "attend": 1, "combine": 1, "gate": 1}
    assert found["launches"]["llama"] == llama
    fp8 = Counter(llama) - Counter(linear=4) + Counter(_scaled_mm=4, narrow=4)
    assert found["launches"]["fp8"] == fp8
    assert found["launches"]["qwen"] == llama | {"rms_norm": 2}


def test_kernels_compile_for_sm90_without_spills():
    done = run("compile_sm90.py")
    assert done.returncode == 0, done.stderr
    for case in json.loads(done.stdout):
        assert case["spilled_bytes"] == 0, case
        assert case["registers"] <= 200, case
        if case["kernel"] == "attend":
            assert case["async_16_byte_loads"] > 0, case
        assert case["shared_bytes"] <= 227 * 1024, case
