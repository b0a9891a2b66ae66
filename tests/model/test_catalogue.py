"""The built-in models and the `[model]` table."""

import json
import re

import pytest
from support.each import check_each

from kvsim.model import CompressedAttention, ModelOptions, model_names, named_model
from kvsim.model.catalogue import is_built_in, known_names
from kvsim.plumbing.errors import InputError


def test_every_catalogue_model_has_a_source():
    check_each(model_names(), check_entry)


def check_entry(name):
    model = named_model(name)
    assert model.name == name
    assert model.source.startswith("config.json of ")
    assert model.num_active_params <= model.num_params
    compressed = isinstance(model.layers[0].mixer, CompressedAttention)  # kept in 8 or 16 bits
    wider = model.kv_layout("bf16" if compressed else "fp32")
    if all(group.kind == "recurrent" for group in wider.groups):
        assert model.kv_layout().groups[0].state_bytes > 0
    else:
        assert 0 < model.kv_layout().bytes_per_token < wider.bytes_per_token


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("meta-llama/Llama-3.1-8B", "llama-3.1-8b"),
        ("meta-llama/Meta-Llama-3-8B-Instruct", "llama-3-8b"),
        ("Meta-Llama-3-8B", "llama-3-8b"),
        ("OPT-13B", "opt-13b"),
        ("deepseek-ai/DeepSeek-R1", "deepseek-v3"),
    ],
)
def test_model_ids_match_in_any_case(written, name):
    assert named_model(written) == named_model(name)


def test_an_unknown_name_lists_close_ones():
    with pytest.raises(InputError, match=r"did you mean .*llama-3\.1-8b") as caught:
        named_model("llama3.1-8b")
    assert caught.value.where == "model.name"


def test_model_options_give_layout_and_max_model_len(tmp_path):
    options = ModelOptions.parse(
        {"name": "llama-3-8b", "kv_cache_dtype": "fp8", "tensor_parallel_size": 2}, "model"
    )
    model = options.build()
    assert options.layout(model).bytes_per_token == 32 * 1024
    assert options.model_len(model) == 8192
    config = {"hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 1}
    config |= {"intermediate_size": 64, "vocab_size": 10, "max_position_embeddings": 99}
    (tmp_path / "tiny.json").write_text(json.dumps(config))
    tiny = ModelOptions.parse({"hf_config": "tiny.json", "dtype": "fp32"}, "model")
    assert tiny.build(tmp_path).torch_dtype == "float32"
    assert tiny.build(tmp_path).kv_layout().bytes_per_token == 2 * 64 * 4


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({}, "exactly one of name and hf_config"),
        ({"name": "opt-13b", "hf_config": "x"}, "exactly one of name and hf_config"),
        ({"name": "opt-13b", "dtype": "fp7"}, "unknown dtype"),
        ({"name": "opt-13b", "quantization": "fp3"}, "unknown quantization"),
        ({"name": "opt-13b", "kv_dtype": "fp8"}, "unknown key"),
        ({"name": "opt-13b", "tensor_parallel_size": 0}, r"model\.tensor_parallel_size"),
        (
            {"name": "opt-13b", "quantization": "fp8", "weight_bytes_per_param": 1},
            "at most one of quantization",
        ),
    ],
)
def test_invalid_model_options_are_refused(table, message):
    with pytest.raises(InputError, match=message):
        ModelOptions.parse(table, "model")


def test_max_model_len_beyond_the_positions_is_refused():
    options = ModelOptions(name="opt-13b", max_model_len=4096)
    with pytest.raises(InputError, match=r"got 4096; limit 2048"):
        options.model_len(options.build())


def test_every_known_model_name_is_found() -> None:
    for name, short in known_names().items():
        assert is_built_in(name)
        assert named_model(name).name == short
    assert not is_built_in("no-such-model")
    assert not is_built_in("meta-llama/")


def test_known_ids_contain_no_quantised_checkpoints() -> None:
    quantised = re.compile(r"-(?:FP8|AWQ|GPTQ|NVFP4|Int[48]|W\dA\d+)\b", re.IGNORECASE)
    assert not [name for name in known_names() if "/" in name and quantised.search(name)]
