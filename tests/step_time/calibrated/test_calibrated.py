"""The calibration file and its step time: exact, and refused for other models and devices."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvsim.device import DeviceOptions, device_names, named_device
from kvsim.model import ModelOptions, named_model
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.units import PS_PER_MS, PS_PER_US
from kvsim.step import Chunk, StepShape
from kvsim.step_time import STEP_TIMES
from kvsim.step_time.calibrated import TOKEN_COSTS
from kvsim.step_time.calibrated.domain import Domain
from kvsim.step_time.calibrated.file import (
    CalibrationFile,
    SampleRecord,
    find_calibration,
    read_calibration,
    shipped_folder,
    write_calibration,
)
from kvsim.step_time.calibrated.fit import fit
from kvsim.step_time.calibrated.form import Calibrated
from kvsim.step_time.calibrated.formula import Formula, FormulaTime, Terms
from kvsim.step_time.calibrated.identity import ModelIdentity
from kvsim.step_time.calibrated.samples import SampleRow, SampleSet
from kvsim.step_time.calibrated.table import BrokenLine
from kvsim.step_time.correction import Correction
from kvsim.step_time.options import Hardware

L40S_LLAMA = Hardware(named_model("llama-3-8b"), named_device("l40s"))
TERMS = Terms(
    decode_seq_ps=3,
    decode_seq_mixed_ps=5,
    context_token_ps=7,
    context_token_mixed_ps=11,
    longest_excess_token_ps=13,
    longest_excess_token_mixed_ps=17,
    attention_pair_ps=19,
    prefill_context_token_ps=23,
)
FORMULA = Formula(token_cost=BrokenLine(knots_tokens=(1, 100), values_ps=(1000, 2000)), terms=TERMS)


def made(rows: int = 30) -> CalibrationFile:
    steps = tuple(
        SampleRow(decode_seqs=n, decode_context_tokens=100 * n, seconds=0.01 + n * 1e-4)
        for n in range(1, rows + 1)
    )
    samples = SampleSet("steps.csv", "0" * 64, steps)
    return CalibrationFile.now(
        device="l40s",
        model=ModelIdentity.named("meta-llama/Meta-Llama-3-8B"),
        samples=SampleRecord.of(samples),
        fit=fit(samples.samples(), resamples=2),
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "made.json"
    write_calibration(file, made())
    return file


def test_calibrated_step_time_equals_the_formula_by_hand() -> None:
    time = FormulaTime(FORMULA)
    decode = StepShape((), 4, 40, 16)  # mean 10, so the longest exceeds it by 6
    g4 = 1000 + 1000 * 3 // 99
    assert time.step_ps(decode) == g4 + 3 * 4 + 7 * 40 + 13 * 6
    mixed = StepShape((Chunk(10, 5), Chunk(6, 0)), 4, 40, 16)
    g20, pairs = 1000 + 1000 * 19 // 99, (10 * 5 + 55) + 21
    assert time.step_ps(mixed) == g20 + 5 * 4 + 11 * 40 + 17 * 6 + 19 * pairs + 23 * 21
    assert time.step_ps(StepShape((), 0, 0)) == 0


@given(
    num_decode=st.integers(1, 300),
    mean=st.integers(1, 3000),
    excess=st.integers(0, 3000),
    known=st.booleans(),
    steps=st.integers(1, 50),
    tabulated=st.sampled_from([0, 64, 8192]),
)
def test_decode_run_equals_single_steps(
    num_decode: int, mean: int, excess: int, known: bool, steps: int, tabulated: int
) -> None:
    correction = Correction(-5, token_ps=3, chunk_ps=7, scale_ppm=1_234_567)
    time = FormulaTime(FORMULA, correction, tabulated_tokens=tabulated)
    context = num_decode * mean
    longest = mean + excess if known and num_decode > 1 else 0
    run = time.decode_run(num_decode, context, longest)
    assert run.steps is None
    for t in range(steps):
        shape = StepShape((), num_decode, context + num_decode * t, longest and longest + t)
        assert run.first_ps + run.growth_ps * t == time.step_ps(shape)


def test_corrected_step_time_equals_a_hand_count() -> None:
    correction = Correction(-100, token_ps=3, chunk_ps=7, scale_ppm=2_000_000)
    plain, time = FormulaTime(FORMULA), FormulaTime(FORMULA, correction)
    mixed = StepShape((Chunk(10, 5), Chunk(6, 0)), 4, 40, 16)
    assert time.step_ps(mixed) == pytest.approx(
        2 * plain.step_ps(mixed) - 100 + 3 * 20 + 7 * 2, abs=1
    )  # the table's slope is rounded down once in each
    assert time.step_ps(StepShape((), 0, 0)) == 0


@pytest.mark.parametrize("name", list(TOKEN_COSTS))
@given(ppm=st.integers(1, 3_000_000), tokens=st.integers(1, 5000))
def test_every_token_cost_form_scales_with_the_correction(name: str, ppm: int, tokens: int) -> None:
    candidate = next(TOKEN_COSTS.get(name).candidates(np.arange(1, 1000)))
    width = candidate.columns(np.arange(1, 3)).shape[1]
    form = candidate.build(np.full(width, 1e9))
    scaled = form.scaled(Correction(scale_ppm=ppm))
    assert type(scaled) is type(form)
    assert scaled.ps(tokens) == pytest.approx(form.ps(tokens) * ppm / 10**6, abs=2 * tokens + 2)


def test_calibration_file_is_read_back_equal(tmp_path: Path) -> None:
    path, calibration = tmp_path / "deep" / "made.json", made()
    write_calibration(path, calibration)
    assert read_calibration(path) == calibration
    assert calibration.samples.embedded is not None
    assert len(calibration.samples.embedded) == 30
    assert list(path.parent.iterdir()) == [path]


def test_many_samples_are_stored_as_a_digest_only() -> None:
    record = made(rows=1001).samples
    assert record.embedded is None
    assert (record.rows, record.by_kind) == (1001, {"decode": 1001})


def test_scenario_names_a_calibration_file_by_path(path: Path) -> None:
    options = STEP_TIMES.parse({"kind": "calibrated", "file": str(path)}, "step_time")
    time = options.build(L40S_LLAMA)
    assert time.step_ps(StepShape((), 8, 800)) == pytest.approx(10.8 * PS_PER_MS, rel=0.02)
    slower = Calibrated(file=str(path), overhead_us=250.5).build(L40S_LLAMA)
    assert (
        slower.step_ps(StepShape((), 8, 800)) - time.step_ps(StepShape((), 8, 800))
        == 250.5 * PS_PER_US
    )


def test_steps_outside_the_measured_domain_are_noted(path: Path) -> None:
    time = Calibrated(file=str(path)).build(L40S_LLAMA)
    assert not time.outside_domain(StepShape((), 8, 800))
    assert time.outside_domain(StepShape((), 34, 3400))
    assert time.outside_domain(StepShape((Chunk(8, 0),), 0, 0))


def test_calibration_for_another_model_device_or_tp_is_refused(path: Path) -> None:
    options = Calibrated(file=str(path))
    twin = L40S_LLAMA._replace(model=named_model("llama-3.1-8b"))
    options.build(twin)  # another name, the same shape
    with pytest.raises(InputError, match=r"device.name: .* made on l40s; got h100"):
        options.build(L40S_LLAMA._replace(device=named_device("h100")))
    with pytest.raises(InputError, match=r"another model: llama-3-8b has num_layers 32, .* 40"):
        options.build(L40S_LLAMA._replace(model=named_model("llama-2-13b")))
    with pytest.raises(InputError, match=r"tensor_parallel_size 1; got 2"):
        options.build(L40S_LLAMA._replace(tensor_parallel_size=2))


def test_steps_slightly_beyond_the_domain_count_as_measured() -> None:
    domain = Domain.of([StepShape((), 8, 800), StepShape((), 100, 20_000)])
    assert not domain.outside(StepShape((), 8, 100))  # contexts shorter than any measured
    assert not domain.outside(StepShape((), 100, 22_000))
    assert domain.outside(StepShape((), 100, 22_001))
    assert domain.outside(StepShape((), 7, 700))  # g of fewer tokens is not known
    steps = domain.steps_in_domain(100, 21_000)
    assert steps == 11
    assert not domain.outside(StepShape((), 100, 21_000 + 100 * (steps - 1)))
    assert domain.outside(StepShape((), 100, 21_000 + 100 * steps))


def test_model_names_are_compared_if_shapes_are_unknown() -> None:
    mine = ModelIdentity.named("acme/Cool-1B")
    assert mine.difference(ModelIdentity.named("elsewhere/cool-1b")) is None
    assert mine.difference(ModelIdentity.named("llama-3-8b")) == "acme/Cool-1B is not llama-3-8b"


def test_negative_overhead_beyond_the_shortest_step_is_refused(path: Path) -> None:
    with pytest.raises(InputError, match="takes away more than the shortest step"):
        Calibrated(file=str(path), overhead_us=-11_000).build(L40S_LLAMA)


@pytest.mark.parametrize(
    ("edit", "fault"),
    [
        (lambda table: table.pop("fit"), "fit: required key is missing"),
        (
            lambda table: table.update(format="kvsim-calibration/9"),
            "format: not one of the known values",
        ),
        (lambda table: table.update(extra=1), "extra: unknown key"),
        (
            lambda table: table["fit"]["formula"]["token_cost"].update(kind="spline"),
            "token_cost.kind: unknown token-cost form; got 'spline'",
        ),
        (
            lambda table: table["fit"]["formula"]["terms"].update(context_token_ps=-1),
            "context_token_ps: too small; got -1; limit at least 0",
        ),
    ],
)
def test_damaged_calibration_is_a_one_line_error(path: Path, edit, fault: str) -> None:  # type: ignore[no-untyped-def]
    table = json.loads(path.read_text())
    edit(table)
    path.write_text(json.dumps(table))
    with pytest.raises(InputError) as error:
        read_calibration(path)
    assert fault in str(error.value)


def test_unknown_calibration_name_lists_shipped_ones() -> None:
    with pytest.raises(
        InputError, match=r"unknown calibration; got 'b200'; .*rtx4090-llama-3.1-8b"
    ):
        find_calibration("b200", "step_time.file")


@pytest.mark.parametrize(
    "name", [path.stem for path in sorted(shipped_folder("calibration").glob("*.json"))]
)
def test_every_shipped_calibration_serves_its_own_model_and_device(name: str) -> None:
    calibration = find_calibration(name, "step_time.file")
    assert calibration.model is not None
    assert calibration.device is not None
    assert calibration.fit.held_out
    config = shipped_folder("calibration") / "models" / f"{calibration.model.name}.json"
    model = {"name": calibration.model.name, "dtype": calibration.model.dtype}
    if config.exists():
        model = {"hf_config": str(config), "dtype": calibration.model.dtype}
    device = {"name": calibration.device}
    if calibration.device not in device_names():  # a user describes it in [device]
        device |= {"memory_gib": "8", "bandwidth_gb_per_s": "20", "fp16_tflops": "0.1"}
    time = Calibrated(file=name).build(
        Hardware(
            ModelOptions.model_validate(model).build(),
            DeviceOptions.model_validate(device).build(),
            calibration.tensor_parallel_size,
        )
    )
    alone, full = time.step_ps(StepShape((), 1, 100)), time.step_ps(StepShape((), 128, 100_000))
    assert 0 < alone < full
