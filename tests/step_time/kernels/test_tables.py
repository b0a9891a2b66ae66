"""Kernel tables: distilled from measurements, looked up by shape, extrapolated beyond them."""

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.scenarios import steady
from typer.testing import CliRunner

from kvsim.commands.calibrate import app
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.shipped import shipped_folder
from kvsim.simulation import simulate
from kvsim.step_time.kernels.distil import TOLERANCE, KernelCurve, thinned
from kvsim.step_time.kernels.source import opened, sources
from kvsim.step_time.kernels.tables import SUFFIX, KernelFamily, KernelLine, KernelTables

GEMM_US = {1: 10.0, 64: 10.0, 128: 18.0, 4096: 300.0}


def save(path: Path, **columns: list[object]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)


def gemm(folder: Path, version: str, scale: float = 1.0, **more: list[object]) -> None:
    """Measurements of one product in two dtypes, in ms."""
    tokens = list(GEMM_US)
    columns: dict[str, list[object]] = {
        "gemm_dtype": ["bfloat16"] * 4 + ["fp8"] * 4,
        "m": tokens * 2,
        "n": [1024] * 8,
        "k": [2048] * 8,
        "latency": [us * scale / 1e3 for us in (*GEMM_US.values(), *GEMM_US.values())],
    }
    save(folder / "gemm" / "vllm" / version / "gemm_perf.parquet", **columns | more)


def distil(folder: Path, out: Path, *options: str) -> str:
    arguments = ["kernels", str(folder), "--out", str(out), *options]
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert not result.exit_code
    return result.output


def test_distilled_kernel_table_reproduces_the_measurements(tmp_path):
    gemm(tmp_path / "own", "0.24.0")
    distil(tmp_path / "own", tmp_path / "out", "--device", "l40s")
    tables = KernelTables(tmp_path / "out" / "l40s-vllm.npz", None)
    line = tables.required("gemm", ("bfloat16",)).lines[1024, 2048]
    for tokens, us in GEMM_US.items():
        assert line.at(tokens) == pytest.approx(us, rel=2e-3)


def test_fastest_of_several_measured_kernels_is_used(tmp_path):
    slow = [us / 1e3 for us in GEMM_US.values()]
    gemm(tmp_path, "0.24.0", gemm_dtype=["bfloat16"] * 8, latency=[*slow, *(us / 2 for us in slow)])
    distil(tmp_path, tmp_path / "out", "--device", "h200")
    tables = KernelTables(tmp_path / "out" / "h200-vllm.npz", None)
    line = tables.required("gemm", ("bfloat16",)).lines[1024, 2048]
    assert line.at(4096) == pytest.approx(150, rel=2e-3)


@pytest.mark.parametrize(
    ("version", "us"), [("0.19", 450), ("0.24.0", 300), ("0.20.2", 450), ("0.9", 300)]
)
def test_newest_table_version_up_to_the_servers_is_used(tmp_path, version, us):
    gemm(tmp_path / "h100_sxm", "0.19.0", scale=1.5)
    gemm(tmp_path / "h100_sxm", "0.24.0")
    distil(tmp_path, tmp_path / "out")
    tables = KernelTables(tmp_path / "out" / "h100-vllm.npz", version)
    line = tables.required("gemm", ("fp8",)).lines[1024, 2048]
    assert line.at(4096) == pytest.approx(us, rel=2e-3)


def test_older_table_version_with_equal_times_is_dropped(tmp_path):
    gemm(tmp_path / "h100_sxm", "0.19.0", scale=1.01)
    gemm(tmp_path / "h100_sxm", "0.24.0")
    distil(tmp_path, tmp_path / "out")
    versions = np.load(tmp_path / "out" / "h100-vllm.npz")["version_words"].tolist()
    assert set(versions) == {"0.24.0"}


def test_times_of_two_part_kernels_are_added_and_a_lone_part_is_dropped(tmp_path):
    halves = ["mla_gen_pre", "mla_gen_post", "mla_gen_pre"]
    save(
        tmp_path / "mla_bmm" / "sglang" / "0.5" / "mla_bmm_perf.parquet",
        op_name=halves,
        bmm_dtype=["bfloat16"] * 3,
        num_tokens=[8, 8, 16],
        num_heads=[16] * 3,
        latency=[0.002, 0.003, 0.002],
    )
    distil(tmp_path, tmp_path / "out", "--device", "b200")
    tables = KernelTables(tmp_path / "out" / "b200-sglang.npz", None)
    line = tables.required("mla_absorb", ("bfloat16",)).lines[16,]
    assert line.x == (8,)
    assert line.us == pytest.approx((5,), rel=2e-3)


def test_one_device_of_a_folder_of_several_is_picked_by_only(tmp_path):
    for device in ("h100_sxm", "b200_sxm"):
        gemm(tmp_path / device, "0.24.0")
    with pytest.raises(InputError, match=r"several devices.*got h100; give --only h100"):
        distil(tmp_path, tmp_path / "out", "--device", "h100")
    distil(tmp_path, tmp_path / "out", "--only", "h100")
    assert [each.name for each in (tmp_path / "out").iterdir()] == ["h100-vllm.npz"]


def test_missing_kernel_table_column_is_named(tmp_path):
    save(tmp_path / "gemm" / "vllm" / "0.2" / "gemm_perf.parquet", m=[1], latency=[1.0])
    with pytest.raises(InputError, match=r"lacks gemm_dtype, k, n; got m, latency"):
        distil(tmp_path, tmp_path / "out", "--device", "h100")
    assert not (tmp_path / "out").exists()


def test_a_folder_or_file_without_kernels_is_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("none")
    with pytest.raises(InputError, match="no measured kernels of a device"):
        sources(tmp_path, None)
    with pytest.raises(InputError, match="neither a wheel nor"), opened(tmp_path / "notes.txt"):
        pass
    with pytest.raises(InputError, match="no such wheel or folder"), opened(tmp_path / "nothing"):
        pass


curves = st.lists(st.integers(1, 10**6), min_size=1, max_size=40, unique=True).flatmap(
    lambda x: st.lists(st.floats(1, 1e6), min_size=len(x), max_size=len(x)).map(
        lambda us: KernelCurve(np.array(sorted(x)), np.array(us))
    )
)


@settings(deadline=None)
@given(curves)
def test_dropped_kernel_points_are_close_to_the_interpolation(curve):
    kept = thinned(curve)
    line = np.interp(curve.x, kept.x, kept.us)
    assert np.abs(line / curve.us - 1).max() <= TOLERANCE + 1e-9
    assert set(kept.x) <= set(curve.x)


grids = st.fixed_dictionaries(
    {(n, k): st.floats(1, 1e4) for n in (512, 1024, 4096) for k in (1024, 8192)}
)


def work(shape, tokens):
    return shape[0] * shape[1] * tokens


@settings(deadline=None)
@given(grids, st.integers(512, 4096), st.integers(1024, 8192))
def test_time_between_measured_shapes_is_interpolated(times, n, k):
    family = KernelFamily({shape: KernelLine((1.0, 64.0), (us, us)) for shape, us in times.items()})
    for shape, us in times.items():
        assert family.between(shape, work).at(1) == us
    found = family.between((n, k), work).at(16)
    assert min(times.values()) * 0.999 <= found <= max(times.values()) * 1.001


def test_shapes_beyond_the_grid_are_scaled_by_the_roofline():
    family = KernelFamily(
        {(n, 1024): KernelLine((1.0, 64.0), (n / 100, n / 50)) for n in (512, 1024)}
    )
    assert family.between((4096, 1024), work).at(64) == pytest.approx(4 * 1024 / 50)
    assert family.between((1024, 2048), work).at(64) == pytest.approx(2 * 1024 / 50)
    assert KernelLine((1.0, 64.0), (10.0, 20.0)).at(127) == pytest.approx(30)


def test_table_version_with_implausible_times_is_dropped(tmp_path):
    gemm(tmp_path / "h100_sxm", "0.24.0")
    gemm(tmp_path / "h100_sxm", "0.27.1", scale=10)
    distil(tmp_path, tmp_path / "out")
    versions = np.load(tmp_path / "out" / "h100-vllm.npz")["version_words"].tolist()
    assert set(versions) == {"0.24.0"}


def test_shipped_tables_are_read_without_pyarrow(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    path = shipped_folder("calibration") / "kernels" / f"h100-vllm{SUFFIX}"
    assert KernelTables(path, None).required("gemm", ("bfloat16",)).lines


def test_invalid_table_file_is_named(tmp_path):
    path = tmp_path / "h100-vllm.npz"
    path.write_bytes(b"PAR1")
    with pytest.raises(InputError, match=r"not a table of kernels.*calibrate kernels"):
        KernelTables(path, None)
    np.savez(path, kind=np.arange(3))
    with pytest.raises(InputError, match="not a table of kernels"):
        KernelTables(path, None)


def test_users_kernel_tables_are_filled_up_with_rooflines(
    tmp_path,
):
    def tpot_s(slower: int, **more: object) -> tuple[float, str]:
        path = tmp_path / f"own-{slower}" / "gemm" / "vllm" / "0.11.0" / "gemm_perf.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        shapes = [(6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336), (128256, 4096)]
        rows = [
            f"bfloat16,{m},{n},{k},{slower * (0.01 + n * k * 2e-9 * max(1, m / 256))}"
            for n, k in shapes
            for m in (1, 256, 4096)
        ]
        path.write_text("\n".join(["gemm_dtype,m,n,k,latency", *rows]))
        distil(path.parents[3], tmp_path / f"out-{slower}", "--device", "my-gpu")
        own = {"name": "my-gpu", "memory_gib": 40, "bandwidth_gb_per_s": 1000, "fp16_tflops": 165}
        tables = {"kind": "kernels", "tables": str(tmp_path / f"out-{slower}")}
        made = {"allocator": [{"kind": "paged"}], "device": own, "step_time": tables}
        result = simulate(steady(20) | made | {"model": {"name": "llama-3.1-8b", **more}})
        mean = result.runs[0].summary.tpot_s.mean
        assert mean is not None
        return mean, result.scenario["provenance"]["step_time"]

    once, source = tpot_s(1)
    assert "my-gpu-vllm" in source
    assert source.endswith("decode_attention, prefill_attention by fitted rooflines")
    assert 1.8 < tpot_s(2)[0] / once < 2  # products are nearly all of a step of one sequence
    assert "all_reduce" in tpot_s(1, tensor_parallel_size=2)[1]


@pytest.mark.parametrize(
    ("text", "words"), [("m,n\n1,2\n", "lacks gemm_dtype, k, latency"), ("", "cannot be read")]
)
def test_invalid_measurements_file_is_named(tmp_path, text, words):
    path = tmp_path / "own" / "gemm" / "vllm" / "0.11.0" / "gemm_perf.csv"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    with pytest.raises(InputError, match=words):
        distil(tmp_path / "own", tmp_path / "out", "--device", "my-gpu")
