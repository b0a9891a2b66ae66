"""A file that no reader knows is refused with what it is nearest to; older forms are read."""

import json
from pathlib import Path

import pytest
from support.import_samples import bench_result

from kvsim.model import ModelOptions
from kvsim.plumbing.errors import InputError
from kvsim.readers.detect import read_sources

UNKNOWN = {
    "a batch of OpenAI": (
        '{"custom_id": "1", "method": "POST", "url": "/v1/chat/completions", "body": {}}\n',
        "OpenAI's batch API",
    ),
    "ServeGen": ('client_id,timestamp,input_tokens,output_tokens\n1,0.5,10,20\n', "ServeGen"),
    "spans of a client": ('{"gen_ai.request.model": "m", "a": 1}\n', "gen_ai spans"),
    "nvidia-smi": ("timestamp, utilization.gpu [%], memory.used [MiB]\n1, 2, 3\n", "nvidia-smi"),
    "a log in brackets": ("[INFO] the server starts\nmore\n", "log of an engine's worker"),
    "some JSON": ('{"colour": 1}', "the keys colour"),
    "a manifest": ("apiVersion: v1\nkind: Pod\nspec:\n  x: 1\n", "manifest"),
    "a point of InferenceX": ('{"infmax_model_prefix": "dsr1", "median_ttft": 0.1}', "InferenceX"),
    "a chunk of ServeGen": ('0,0.5,0,1\n1,0.7,0,2\n', "ServeGen"),
    "YAML that names vLLM": ("# note\nname: store\nvllm:\n  vllm_args: [--a]\n", "another tool"),
    "a script": ("#!/bin/bash\necho INFO\npython -m atom.server x\n", "no server that kvsim knows"),
}  # fmt: skip


@pytest.mark.parametrize("kind", UNKNOWN)
def test_unrecognised_file_is_refused_with_the_nearest_format(tmp_path: Path, kind: str) -> None:
    text, words = UNKNOWN[kind]
    path = tmp_path / "file.txt"
    path.write_text(text)
    with pytest.raises(InputError) as raised:
        read_sources([str(path)], [])
    assert words in str(raised.value)
    assert len(str(raised.value).replace(str(path), "")) < 400
    assert "trtllm-config, vllm-log" not in str(raised.value)


def test_infinity_in_a_models_config_is_read(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(
        '{"model_type": "mamba2", "num_heads": 128, "head_dim": 64, "hidden_size": 4096, '
        '"state_size": 128, "num_hidden_layers": 64, "vocab_size": 32768, '
        '"time_step_limit": [0.0, Infinity]}'
    )
    model = ModelOptions.parse({"hf_config": str(path)}, "model").build(offline=True)
    assert model.num_layers == 64


OLDER = (
    "llm_load_tensors:      CUDA0 buffer size =  8192.00 MiB\n"
    "llama_new_context_with_model: n_ctx      = 32768\n"
    "llama_new_context_with_model: n_ubatch   = 512\n"
    "llama_kv_cache_init:      CUDA0 KV buffer size =  1600.00 MiB\n"
    "llama_kv_cache_init:      CUDA1 KV buffer size =  1472.00 MiB\n"
    "llama_new_context_with_model: KV self size  = 3072.00 MiB, K (q8_0): 1536.00 MiB, V (q8_0): "
    "1536.00 MiB\n"
    'INFO [                    init] initializing slots | tid="1" timestamp=1 n_slots=4\n'
)


def test_log_of_an_older_llama_cpp_is_read(tmp_path: Path) -> None:
    path = tmp_path / "llama.log"
    path.write_text(OLDER)
    (read,) = read_sources([str(path)], [])
    found = read.description.settings
    assert (found.n_ctx, found.n_ubatch, found.n_parallel) == (32768, 512, 4)
    assert (found.kv_cache_bytes, found.weights_gib) == (3072 << 20, 8.0)
    assert found.kv_cache_dtype == "q8_0"


def test_served_model_name_with_hyphens_is_read_in_full(tmp_path: Path) -> None:
    path = tmp_path / "vllm.log"
    path.write_text(
        "INFO 06-10 20:36:00 [core.py:1] Initializing a V1 LLM engine (v0.11.0) with config: "
        "model='x', served_model_name=ibm-granite/granite-4.0-micro, enable_prefix_caching=True\n"
    )
    (read,) = read_sources([str(path)], [])
    assert read.description.settings.served_model_name == "ibm-granite/granite-4.0-micro"


def test_inferencex_latencies_are_read_as_seconds(tmp_path: Path) -> None:
    plain = {k: v for k, v in bench_result().items() if not k.endswith("_ms")}
    path = tmp_path / "point.json"
    path.write_text(json.dumps(plain | {"median_ttft": 0.5, "p99_tpot": 0.02}))
    (read,) = read_sources([str(path)], [])
    assert read.description.measured["ttft_p50_s"] == 0.5
    assert read.description.measured["tpot_p99_s"] == 0.02
