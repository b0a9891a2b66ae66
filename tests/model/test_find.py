"""Models by name: copies by what their name says, repositories from a host on this machine."""

import http.server
import json
import os
import subprocess
import sys
import threading

import pytest

from kvsim.model.catalogue import elder_of, known_names
from kvsim.model.find import find_model
from kvsim.model.names import read_name
from kvsim.model.repository import is_repository
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.units import GIB

CONFIG = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "vocab_size": 100,
    "max_position_embeddings": 256,
    "torch_dtype": "bfloat16",
}


@pytest.mark.parametrize(
    ("written", "base", "scheme"),
    [
        ("RedHatAI/Qwen2.5-7B-Instruct-fp8-dynamic", "qwen2.5-7b-instruct", "fp8"),
        ("redhatai/Llama-3.3-70B-Instruct-quantized.w8a8", "llama-3.3-70b-instruct", "int8"),
        (
            "x/Mistral-Small-24B-Instruct-2501-quantized.w4a16",
            "mistral-small-24b-instruct-2501",
            "int4",
        ),
        (
            "TechxGenus/DeepSeek-Coder-V2-Lite-Instruct-AWQ",
            "deepseek-coder-v2-lite-instruct",
            "int4",
        ),
        (
            "hugging-quants/Meta-Llama-3.1-8B-Instruct-AWQ-INT4",
            "meta-llama-3.1-8b-instruct",
            "int4",
        ),
        ("ISTA-DASLab/gemma-3-27b-it-GPTQ-4b-128g", "gemma-3-27b-it", "int4"),
        ("Qwen/Qwen2.5-72B-Instruct-GPTQ-Int4", "qwen2.5-72b-instruct", "int4"),
        ("nvidia/Qwen3.6-35B-A3B-NVFP4", "qwen3.6-35b-a3b", "nvfp4"),
        ("Qwen3.6-27B autoround int4", "qwen3.6-27b", "int4"),
        ("zai-org/GLM-5.1-FP8", "glm-5.1", "fp8"),
        ("Qwen3-4B-Thinking", "qwen3-4b", None),
        ("Qwen2.5-7B (4 bit, 5.20 GiB of weights)", "qwen2.5-7b", None),
    ],
)
def test_repository_names_give_model_and_quantisation(written, base, scheme):
    assert read_name(written, known_names()) == (base, scheme)


@pytest.mark.parametrize("written", ["acme/Cool-1B", "llama", "fp8", "", "Qwen3.6-27B-Coolest"])
def test_unknown_model_names_are_refused(written):
    assert read_name(written, known_names()) is None


@pytest.mark.parametrize(
    ("name", "elder"),
    [
        ("Qwen/Qwen3.8-27B", "Qwen/Qwen3.5-27B"),
        ("zai-org/GLM-5.1", "zai-org/GLM-5"),
        ("zai-org/GLM-5", None),
        ("Qwen/Qwen3-8B-Base", None),
        ("qwen3.5-27b", None),
        ("acme/Cool-1B", None),
    ],
)
def test_id_with_an_older_models_shape_resolves_to_it(name, elder):
    assert elder_of(name) == elder


def test_quantised_copy_names_the_source_of_its_shape():
    model = find_model("acme/Qwen3-8B-FP8", offline=True)
    assert model.name == "acme/Qwen3-8B-FP8"
    assert model.weight_format.linear_bits == 8
    assert "by the name of the copy, weights as fp8" in model.source
    with pytest.raises(InputError, match=r"unknown model.*not in the cache"):
        find_model("acme/Cool-1B", offline=True)


@pytest.mark.parametrize("name", ["meta-llama/Llama-3.2-11B-Vision", "MiniMax-M1-80k"])
def test_known_models_beyond_kvsim_are_refused_by_name(name):
    with pytest.raises(InputError, match="not understood"):
        find_model(name, offline=True)


@pytest.mark.parametrize("name", ["unsloth/Qwen3-8B-GGUF", "qwen3-8b.gguf", "a/b-gguf:Q4_K_M"])
def test_gguf_is_refused_by_name(name):
    with pytest.raises(InputError, match="GGUF files are not read"):
        find_model(name, offline=True)


def test_quantised_copies_may_leave_recurrent_layers_unquantised():
    """48 layers of Qwen3.5-27B have 5.5 B parameters of gated delta nets, a byte more each."""
    plain = find_model("Qwen/Qwen3.5-27B")
    copy = find_model("acme/Qwen3.5-27B-FP8-dynamic", offline=True)
    recurrent = 48 * (5120 * (2 * 2048 + 2 * 6144 + 2 * 48) + 6144 * 5120)
    linear = plain.weights().linear
    saved = plain.weight_bytes() - copy.weight_bytes()
    assert saved == pytest.approx(linear - recurrent, rel=1e-9)
    assert find_model("acme/Qwen3.5-27B-NVFP4", offline=True).weight_format.mixer_bits is not None
    whole = find_model("acme/Qwen3.5-27B-AWQ", offline=True)
    assert whole.weight_format.mixer_bits is None


def test_modelopt_mixed_precision_weights_equal_the_repository_size():
    """21.9 and 23.4 GB (github.com/noonghunna/club-3090), a drafting layer in 16 bits among them:
    a layer like the target's last one, and a matrix of two hidden states to one.
    """
    for name, published in (("nvidia/Qwen3.6-27B", 21.9), ("nvidia/Qwen3.6-35B-A3B", 23.4)):
        model = find_model(f"{name}-NVFP4", offline=True)
        last = model.layers[-1].weights(model.hidden_size, 1)
        drafting = 2 * (last.total + 2 * model.hidden_size**2)
        assert (model.weight_bytes() + drafting) / 1e9 == pytest.approx(published, rel=0.005)
    copy = find_model("RedHatAI/Qwen3.6-27B-NVFP4", offline=True)
    assert copy.weight_format.head_bits is None


def test_qwens_fp8_checkpoint_quantises_recurrent_layers_too():
    """14.28 GiB on each of two GPUs, the next-token module among them
    (github.com/vllm-project/recipes/pull/810).
    """
    found = find_model("Qwen/Qwen3.8-27B-FP8", offline=True)
    assert found.weight_bytes(2) / GIB == pytest.approx(14.28, rel=0.02)


@pytest.mark.parametrize(
    ("name", "yes"), [("a/b", True), ("Qwen/Qwen3-8B", True), ("a/b/c", False), ("qwen3-8b", False)]
)
def test_repository_names_are_recognised(name, yes):
    assert is_repository(name) is yes


HEAD = {"dtype": "BF16", "shape": [128, 64], "data_offsets": [0, 128 * 64 * 2]}
HEADER = json.dumps({"lm_head.weight": HEAD}).encode()
FILE = len(HEADER).to_bytes(8, "little") + HEADER + bytes(1_000_000)


class Host(http.server.BaseHTTPRequestHandler):
    """A server with the hub's API for one repository, and one that requires access."""

    def do_HEAD(self):
        self.answer(body=False)

    def do_GET(self):
        self.answer(body=True)

    def answer(self, body):
        self.server.asked.append(self.path)
        text = json.dumps(CONFIG).encode()
        owner = self.path.split("/")[1]
        if owner == "acme":
            if self.path.endswith(".safetensors"):
                text = FILE
            asked = self.headers.get("Range", "")
            if asked:
                start, end = (int(number) for number in asked.removeprefix("bytes=").split("-"))
                text = text[start : end + 1]
                assert start == 0
                assert len(text) < len(FILE)  # the header, and not the weights
            self.send_response(206 if asked else 200)
            self.send_header("ETag", '"0123456789abcdef0123456789abcdef01234567"')
            self.send_header("X-Repo-Commit", "a" * 40)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
        else:
            text = b""
            self.send_response(403 if owner == "gated" else 404)
            code = {"gated": "GatedRepo", "bare": "EntryNotFound"}.get(owner, "RepoNotFound")
            self.send_header("X-Error-Code", code)
            self.send_header("Content-Length", "0")
        self.end_headers()
        if body:
            self.wfile.write(text)

    def log_message(self, *words):
        """Silent."""


@pytest.fixture
def host():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Host)
    server.asked = []
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def ask(name, home, endpoint, **environment):
    """`kvsim memory` in a process of its own: huggingface_hub reads its settings once."""
    pytest.importorskip("huggingface_hub")
    settings = {"HF_HOME": str(home), "HF_ENDPOINT": endpoint, "HF_HUB_DISABLE_TELEMETRY": "1"}
    words = ["memory", name, "--device", "l4", "--json"]
    return subprocess.run(
        [sys.executable, "-m", "kvsim.cli", *words],
        env={**os.environ, **settings, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_repository_is_fetched_once_and_found_again_without_a_network(host, tmp_path):
    endpoint = f"http://127.0.0.1:{host.server_port}"
    first = ask("acme/Cool-1B", tmp_path, endpoint)
    assert first.returncode == 0, first.stderr
    found = json.loads(first.stdout)
    assert found["bytes_per_token"] == 3 * 2 * 64 * 2
    by = "weights by the checkpoint's headers"
    assert found["source"] == f"config.json of acme/Cool-1B on Hugging Face, {by}"
    assert found["weights_bytes"] == 128 * 64 * 2 + 256 * 16 * 2  # and the rotations' tables
    assert {path for path in host.asked if path != "/"} == {
        "/acme/Cool-1B/resolve/main/config.json",
        "/acme/Cool-1B/resolve/main/model.safetensors",
    }
    host.asked.clear()
    assert ask("acme/Cool-1B", tmp_path, endpoint).stdout == first.stdout
    assert host.asked == []
    nowhere = ask("acme/Cool-1B", tmp_path, "http://127.0.0.1:9", HF_HUB_OFFLINE="1")
    assert nowhere.stdout == first.stdout


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nobody/Cool-1B", "the host knows no repository"),
        ("gated/Cool-1B", "asks for access and a token"),
        ("bare/Cool-1B", "has no config.json"),
    ],
)
def test_refusal_of_the_hub_is_reported(host, tmp_path, name, words):
    answer = ask(name, tmp_path, f"http://127.0.0.1:{host.server_port}")
    assert answer.returncode == 2
    assert words in answer.stderr
    assert answer.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("environment", "words"),
    [({}, "cannot be reached"), ({"HF_HUB_OFFLINE": "1"}, "kvsim is offline")],
)
def test_model_lookup_without_network_names_the_remedy(tmp_path, environment, words):
    answer = ask("acme/Cool-1B", tmp_path, "http://127.0.0.1:9", **environment)
    assert answer.returncode == 2
    assert words in answer.stderr
