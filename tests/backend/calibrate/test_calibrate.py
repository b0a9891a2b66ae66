import json

import pytest
from typer.testing import CliRunner

from kvsim.backend.calibrate import calibrate as calibrating
from kvsim.backend.calibrate.calibrate import find_model, fitted, trace_steps
from kvsim.backend.measure.grid import CPU, CUDA, Limits, grid
from kvsim.backend.measure.measure import Measured
from kvsim.backend.shape import Shape
from kvsim.backend.simulated.shape import llama_shape
from kvsim.cli import app
from kvsim.plumbing.errors import InputError
from kvsim.step_time.calibrated.file import read_calibration, write_calibration
from kvsim.step_time.calibrated.identity import ModelIdentity

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


def test_the_backend_computes_the_models_of_the_catalogue_that_are_llamas():
    shape = llama_shape(find_model("llama-3-8b", None))
    assert shape == Shape(32, 4096, 32, 8, 128, 14336, 128256, "bfloat16")
    assert llama_shape(find_model("llama-3-8b", "float32")).kv_bytes_per_token == 262144


@pytest.mark.parametrize("name", ["opt-13b", "falcon-7b", "gpt2"])
def test_and_refuses_others(name):
    with pytest.raises(InputError, match="Llama-shaped decoders only"):
        llama_shape(find_model(name, None))


@pytest.mark.parametrize("limits", [CPU, CUDA])
def test_held_out_steps_lie_within_the_grid_and_are_not_of_it(limits):
    steps = trace_steps(limits, 60, 0)
    assert len(steps) >= 55
    assert {plan.kind for plan in steps} == {"decode", "prefill", "mixed"}
    assert max(plan.step_tokens for plan in steps) <= limits.step_tokens
    assert max(plan.cache_tokens for plan in steps) <= limits.pool_tokens
    assert max(len(plan.contexts) for plan in steps) <= limits.batches[-1]
    measured = {(plan.chunks, plan.contexts) for plan in grid(limits)}
    assert not measured & {(plan.chunks, plan.contexts) for plan in steps}


def law_s(plan):
    """A device whose steps take exactly what the form can say."""
    pairs = sum(new * prior + new * (new + 1) / 2 for new, prior in plan.chunks)
    return 1e-3 + 8e-6 * plan.step_tokens + 2e-8 * sum(plan.contexts) + 1e-9 * pairs


def test_a_device_that_follows_the_form_is_found_again(tmp_path):
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
    facts = {key: {} for key in calibrating.MEASURED_FACTS} | {
        "device": {"name": "NVIDIA H200"},
        "refused": 0,
    }
    model = find_model("llama-3-8b", None)
    made = fitted(model, Measured(rows, facts), seed=0)
    assert set(made.held_out) == {"decode", "prefill", "mixed"}
    assert max(errors.mape for errors in made.held_out.values()) < 0.002
    path = tmp_path / "file.json"
    write_calibration(path, made.file)
    again = read_calibration(path)
    assert again.device == "h200"
    again.check_model(ModelIdentity.of(model), "step_time")
    with pytest.raises(InputError, match="another model"):
        again.check_model(ModelIdentity.named("llama-2-7b"), "step_time")


def test_the_command_measures_fits_and_leaves_one_file(tmp_path, monkeypatch):
    small = Limits((1, 2, 4), (8, 32), 192, 512)
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


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--model", "llama-3-8b"], "--out"),
        (["--out", "x.json"], "--model"),
        (["--model", "llama-3-8b", "--out", "x.json", "--device", "tpu"], "no such device"),
        (["--model", "nope", "--out", "x.json"], "unknown model"),
    ],
)
def test_what_is_missing_or_wrong_is_named(options, words):
    done = CliRunner().invoke(app, ["calibrate", *options])
    assert isinstance(done.exception, InputError)
    assert words in str(done.exception)
