import json
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.random import PCG64, Generator
from typer.testing import CliRunner

from kvsim.backend.calibrate import calibrate as calibrating
from kvsim.backend.calibrate.calibrate import fitted, trace_steps
from kvsim.backend.calibrate.pace import at_pace_of
from kvsim.backend.calibrate.served import Served, level_of
from kvsim.backend.measure.grid import CPU, CUDA, GridLimits, grid
from kvsim.backend.measure.pace import Pace
from kvsim.backend.measure.summary import MeasuredSamples
from kvsim.backend.shape import Shape
from kvsim.backend.simulated.models import find_model
from kvsim.backend.simulated.shape import llama_shape
from kvsim.backend.transformer.decoder import Decoder
from kvsim.cli import app
from kvsim.observed.own_meta import ObservedMeta
from kvsim.plumbing.errors import InputError
from kvsim.step_time.calibrated.file import read_calibration, write_calibration
from kvsim.step_time.calibrated.fit import errors_by_kind, fit
from kvsim.step_time.calibrated.formula import FormulaTime
from kvsim.step_time.calibrated.identity import ModelIdentity
from kvsim.step_time.calibrated.measured import CONDITIONS
from kvsim.step_time.calibrated.samples import Sample, SampleRow

TINY = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "num_hidden_layers": 1,
    "hidden_size": 16,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "intermediate_size": 16,
    "vocab_size": 11,
    "max_position_embeddings": 4096,
    "torch_dtype": "float32",
}


def test_backend_runs_the_llama_shaped_models_of_the_catalogue():
    shape = llama_shape(find_model("llama-3-8b", None).build())
    assert shape == Shape(32, 4096, 32, 8, 128, 14336, 128256, "bfloat16")
    assert llama_shape(find_model("llama-3-8b", "float32").build()).kv_bytes_per_token == 262144


def test_backend_models_qwen_biases_and_norms():
    assert llama_shape(find_model("qwen2.5-7b", None).build()).qkv_bias
    assert llama_shape(find_model("qwen3-8b", None).build()).qk_norm
    qwen = TINY | {"model_type": "qwen3"}
    assert Shape.from_hf(qwen).qk_norm
    with pytest.raises(InputError, match="biases of all projections"):
        Shape.from_hf(qwen | {"attention_bias": True})
    with pytest.raises(InputError, match="Llama-shaped decoders only"):
        Shape.from_hf(TINY | {"model_type": "olmo2"})
    mistral = TINY | {"model_type": "mistral", "sliding_window": 4096}
    assert Shape.from_hf(mistral).window == 4096
    assert Shape.from_hf(mistral | {"use_sliding_window": False}).window is None
    with pytest.raises(InputError, match="with and without a window"):
        Shape.from_hf(mistral | {"max_window_layers": 2})


@pytest.mark.parametrize("name", ["opt-13b", "falcon-7b", "gpt2", "glm-4-9b"])
def test_calibrate_refuses_models_of_other_architectures(name):
    with pytest.raises(InputError, match="Llama-shaped decoders only"):
        llama_shape(find_model(name, None).build())


@pytest.mark.parametrize("limits", [CPU, CUDA])
def test_held_out_steps_are_inside_the_grid_range_and_not_grid_steps(limits):
    steps = trace_steps(limits, 60, 0)
    assert len(steps) >= 55
    assert {plan.kind for plan in steps} == {"decode", "prefill", "mixed"}
    assert max(plan.step_tokens for plan in steps) <= limits.step_tokens
    assert max(plan.cache_tokens for plan in steps) <= limits.pool_tokens
    assert max(len(plan.contexts) for plan in steps) <= limits.batches[-1]
    measured = {(plan.chunks, plan.contexts) for plan in grid(limits)}
    assert not measured & {(plan.chunks, plan.contexts) for plan in steps}


def law_s(plan):
    """Seconds of a step on a synthetic device that follows the fitted formula exactly."""
    pairs = sum(new * prior + new * (new + 1) / 2 for new, prior in plan.chunks)
    return 1e-3 + 8e-6 * plan.step_tokens + 2e-8 * sum(plan.contexts) + 1e-9 * pairs


def test_calibrate_recovers_the_coefficients_of_a_synthetic_device(tmp_path):
    rows = [
        {
            "kind": plan.kind,
            "chunks": [list(chunk) for chunk in plan.chunks],
            "decode_seqs": len(plan.contexts),
            "decode_context_tokens": sum(plan.contexts),
            "decode_context_max": max(plan.contexts, default=0),
            "seconds": law_s(plan),
            "source": plan.source,
        }
        for plan in grid(CUDA) + trace_steps(CUDA, 60, 0)
    ]
    facts = {key: {} for key in CONDITIONS} | {
        "device": {"name": "NVIDIA H200"},
        "refused": 0,
    }
    model = find_model("llama-3-8b", None).build()
    made = fitted(model, MeasuredSamples(rows, facts), seed=0)
    assert set(made.held_out) == {"decode", "prefill", "mixed"}
    assert max(errors.mape for errors in made.held_out.values()) < 0.002
    path = tmp_path / "file.json"
    write_calibration(path, made.file)
    again = read_calibration(path)
    assert again.device == "h200"
    again.check_model(ModelIdentity.of(model), "step_time")
    with pytest.raises(InputError, match="another model"):
        again.check_model(ModelIdentity.named("llama-2-7b"), "step_time")


def repeated_rows():
    plans = grid(CUDA) + trace_steps(CUDA, 60, 0)
    return [
        {
            "chunks": [list(chunk) for chunk in plan.chunks],
            "decode_seqs": len(plan.contexts),
            "decode_context_tokens": sum(plan.contexts),
            "decode_context_max": max(plan.contexts, default=0),
            "seconds": law_s(plan),
            "seconds_min": 0.9 * law_s(plan),
            "source": plan.source,
        }
        for plan in plans
    ]


@given(
    overhead=st.floats(0, 5e-3),
    scale=st.floats(0.5, 3.0),
)
@settings(max_examples=5, deadline=None)
def test_repeated_samples_are_scaled_to_served_steps(overhead, scale):
    facts = {key: {} for key in CONDITIONS} | {
        "device": {"name": "NVIDIA H200"},
        "refused": 0,
    }
    rows = repeated_rows()
    held_out = [SampleRow.parse(row, "") for row in rows if row["source"] != "grid"]
    served = [Sample(row.sample().shape, overhead + scale * row.seconds) for row in held_out]
    model = find_model("llama-3-8b", None).build()
    made = fitted(model, MeasuredSamples(rows, facts), seed=0, served=Served(served))
    level = made.file.measured.method["served"]
    assert level["overhead_s"] == pytest.approx(overhead, abs=5e-5)
    assert level["scale"] == pytest.approx(scale, rel=0.01)
    errors = errors_by_kind(made.file.fit.formula, served)
    assert max(one.mape for one in errors.values()) < 0.01
    for row, raw in zip(made.file.samples.embedded, rows, strict=True):
        assert row.seconds_min < row.seconds
        assert row.seconds == pytest.approx(overhead + scale * raw["seconds"], rel=0.03, abs=1e-4)


def test_served_level_corrects_the_mean_and_is_never_negative():
    formula = fit(
        [SampleRow.parse(row, "").sample() for row in repeated_rows()], resamples=2
    ).formula
    random = Generator(PCG64(0))
    shapes = [SampleRow.parse(row, "").sample() for row in repeated_rows()]
    noisy = [Sample(one.shape, one.seconds * (1.3 + random.normal(0, 0.1))) for one in shapes]
    level = level_of(formula, noisy)
    time = FormulaTime(formula)
    repeated = [time.step_ps(one.shape) * 1e-12 for one in noisy]
    found = sum(level.overhead_s / at + level.scale for at in repeated)
    real = sum(one.seconds / at for one, at in zip(noisy, repeated, strict=True))
    assert found == pytest.approx(real, rel=1e-6)
    # Shorter steps that were faster still would ask for a negative constant.
    faster = [Sample(one.shape, max(1e-6, 1.5 * one.seconds - 1e-3)) for one in shapes]
    found = level_of(formula, faster)
    assert found.overhead_s == 0.0
    assert found.scale > 0


def test_calibrate_measures_fits_and_writes_one_file(tmp_path, monkeypatch):
    small = GridLimits((1, 2, 4), (8, 32), 192, 512)
    monkeypatch.setattr(calibrating, "DESIGNS", {("cpu", True): (small, 1)})
    config, out = tmp_path / "config.json", tmp_path / "made" / "tiny.json"
    config.write_text(json.dumps(TINY))
    options = ["--model", str(config), "--device", "cpu", "--out", str(out), "--quick", "--json"]
    options += ["--store", "contiguous"]
    done = CliRunner().invoke(app, ["calibrate", *options])
    assert done.exit_code == 0, (done.output, done.exception)
    found = json.loads(done.stdout)
    assert found["model"]["hidden_size"] == 16
    assert found["measured"]["backend"]["store"] == "contiguous"
    assert found["measured"]["method"]["clock"] == "thread CPU time"
    assert found["measured"]["method"]["held_out_of_a_simulated_trace"]
    assert [item.name for item in out.parent.iterdir()] == ["tiny.json"]
    assert read_calibration(out).samples.rows >= 20
    level = found["measured"]["method"]["served"]
    assert found["measured"]["method"]["pace_s"] == found["measured"]["sentinel"]["median_s"] > 0
    assert level["slower"] > 0
    assert level["steps"] > 20
    assert level["scale"] > 0
    # Whether the level helps depends on what else this machine does: told, and not judged here.
    assert level["mape"] >= 0 <= level["mape_before"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--model", "llama-3-8b"], "--out"),
        (["--out", "x.json"], "--model"),
        (["--model", "llama-3-8b", "--out", "x.json", "--device", "tpu"], "no such device"),
        (["--model", "nope", "--out", "x.json"], "unknown model"),
    ],
)
def test_calibrate_names_missing_and_wrong_arguments(options, words):
    done = CliRunner().invoke(app, ["calibrate", *options])
    assert isinstance(done.exception, InputError)
    assert words in str(done.exception)


def calibrated_at(pace_s):
    facts = {key: {} for key in CONDITIONS} | {
        "device": {"name": "this CPU"},
        "method": {"pace_s": pace_s},
        "refused": 0,
    }
    rows = repeated_rows()
    served = Served([SampleRow.parse(row, "").sample() for row in rows], 2 * pace_s)
    model = find_model("llama-3-8b", None).build()
    return fitted(model, MeasuredSamples(rows, facts), seed=0, served=served).file


def run_at(pace_s):
    fields = dict.fromkeys(ObservedMeta.model_fields) | {"pace_s": pace_s}
    return SimpleNamespace(meta=ObservedMeta.model_construct(**fields), name="a run")


def test_slower_machine_of_a_served_run_is_corrected_by_its_pace():
    # They took what repeated ones take, on a machine that took twice as long for everything.
    level = calibrated_at(0.01).measured.method["served"]
    assert level["slower"] == 2.0
    assert level["scale"] == pytest.approx(0.5, rel=0.01)


def test_calibration_is_scaled_to_the_pace_of_a_run():
    file = calibrated_at(0.01)
    slower = at_pace_of(run_at(0.013), file)
    samples = file.samples.embedded
    for before, after in zip(samples, slower.samples.embedded, strict=True):
        assert after.seconds == pytest.approx(1.3 * before.seconds)
    time, slow = FormulaTime(file.fit.formula), FormulaTime(slower.fit.formula)
    for row in samples[::9]:
        shape = row.sample().shape
        assert slow.step_ps(shape) == pytest.approx(1.3 * time.step_ps(shape), rel=0.02)
    assert slower.measured.method["brought_to_the_pace_of"] == "a run"
    assert slower.model == file.model
    with pytest.raises(InputError, match="both the run and the calibration must tell"):
        at_pace_of(run_at(None), file)


def test_machine_pace_is_the_sentinels_duration():
    decoder = Decoder(Shape(1, 16, 2, 1, 16, 16, 11))
    for blocks in (True, False):
        pace = Pace(decoder, blocks=blocks)
        assert pace.seconds is None
        pace.take()
        assert 0 < pace.seconds < 1
