"""Caches sized from the headers of GGUF files, by the command and without a file."""

import json
import struct
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from kvsim.cli import app
from kvsim.llamacpp.gguf_file import model_of, read_gguf
from kvsim.llamacpp.placement import device_bytes
from kvsim.llamacpp.sizes import ContextSettings, context_of
from kvsim.plumbing.errors import InputError

GEMMA: dict[str, Any] = {
    "block_count": 18,
    "context_length": 32768,
    "embedding_length": 640,
    "attention.head_count": 4,
    "attention.head_count_kv": 1,
    "attention.key_length": 256,
    "attention.value_length": 256,
    "attention.sliding_window": 512,
}


def header(architecture: str, **more: Any) -> dict[str, Any]:
    keys = {**GEMMA, **{key.replace("__", "."): value for key, value in more.items()}}
    named = {f"{architecture}.{key}": value for key, value in keys.items()}
    return {"general.architecture": architecture, **named}


def sized(path: Path, *flags: str) -> Any:
    result = CliRunner().invoke(app, ["memory", str(path), *flags, "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.fixture
def gemma(tmp_path: Path) -> Path:
    """A GGUF file with the header of gemma-3-270m and no tensor data."""
    pytest.importorskip("gguf", reason="pip install 'kvsim[gguf]'")
    import gguf

    path = tmp_path / "gemma.gguf"
    writer = gguf.GGUFWriter(path, "gemma3")
    for key, value in GEMMA.items():
        writer.add_uint32(f"gemma3.{key}", value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path


@pytest.mark.parametrize(
    ("tokens", "slots", "mib"),
    [(4096, 1, 27), (4096, 2, 42), (4096, 4, 72), (4096, 8, 72), (8192, 1, 39), (8192, 2, 54)],
)
def test_gemma_270m_cache_has_the_size_users_measured(
    gemma: Path, tokens: int, slots: int, mib: int
) -> None:
    """unslothai/unsloth#5225."""
    found = sized(gemma, "--ctx-size", str(tokens), "--parallel", str(slots))
    assert found["kv_bytes"] == mib << 20
    assert found["device_bytes"] == {"host": 0, "GPU 0": mib << 20}


def test_three_llama_server_slots_take_more_cache_than_four(gemma: Path) -> None:
    """unslothai/unsloth#7530: buffers of 512 cells each, or of 256."""
    three, four = (sized(gemma, "--ctx-size", "1024", "--parallel", n) for n in ("3", "4"))
    assert (three["context"]["n_ctx"], three["kv_bytes"]) == (1536, 27 << 20)
    assert (four["context"]["n_ctx"], four["kv_bytes"]) == (1024, 18 << 20)


def test_ollama_allocates_cache_for_every_parallel_request(
    gemma: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "NUM_PARALLEL", "CONTEXT_LENGTH", "KV_CACHE_TYPE":
        monkeypatch.delenv(f"OLLAMA_{name}", raising=False)
    assert sized(gemma, "--engine", "ollama")["context"]["n_ctx"] == 4096
    monkeypatch.setenv("OLLAMA_NUM_PARALLEL", "4")
    monkeypatch.setenv("OLLAMA_KV_CACHE_TYPE", "q8_0")
    found = sized(gemma, "--engine", "ollama", "--ctx-size", "8192")
    assert (found["context"]["n_ctx"], found["context"]["buffers"]) == (32768, 4)
    assert "K (q8_0)" in found["log"][1]
    monkeypatch.setenv("OLLAMA_NUM_PARALLEL", "many")
    result = CliRunner().invoke(app, ["memory", str(gemma), "--engine", "ollama"])
    assert isinstance(result.exception, InputError)
    assert result.exception.where == "OLLAMA_NUM_PARALLEL"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["m.gguf", "--max-num-seqs", "4"], "no option of llama.cpp's cache"),
        (["gemma-3-12b", "--engine", "llama.cpp"], "sized from a GGUF file"),
        (["llama-3-8b", "--device", "h200", "--parallel", "4"], "add --engine llama.cpp"),
    ],
)
def test_inapplicable_llamacpp_option_is_refused(arguments: list[str], said: str) -> None:
    result = CliRunner().invoke(app, ["memory", *arguments])
    assert said in str(result.exception)


def test_llamacpp_cache_is_sized_from_config_json_without_a_gguf_file() -> None:
    """llama.cpp#9016 logs 1,024 MiB for Meta-Llama-3-8B with n_ctx 8192, in f16."""
    found = sized(Path("meta-llama/Meta-Llama-3-8B"), "--engine", "llama.cpp", "--ctx-size", "8192")
    assert found["kv_bytes"] == 1024 << 20
    assert any("config.json" in note for note in found["notes"])


def text(word: str) -> bytes:
    return struct.pack("<Q", len(word)) + word.encode()


def whole(key: str, value: int) -> bytes:
    return text(key) + struct.pack("<II", 4, value)


def several(key: str, kind: int, count: int, content: bytes) -> bytes:
    return text(key) + struct.pack("<IIQ", 9, kind, count) + content


LLAMA = [
    text("general.architecture") + struct.pack("<I", 8) + text("llama"),
    whole("llama.attention.head_count", 8),
    whole("llama.embedding_length", 512),
]
WINDOW = whole("llama.attention.sliding_window", 16)
FOUR = whole("llama.block_count", 4)
LYING = {
    "keys": (LLAMA, 1 << 60, "no GGUF file"),
    "array": ([*LLAMA, FOUR, several("x", 4, 1 << 60, bytes(8))], 5, "no GGUF file"),
    "texts": ([*LLAMA, FOUR, several("x", 8, 1 << 60, text("a"))], 5, "no GGUF file"),
    "text": ([*LLAMA, FOUR, text("x") + struct.pack("<IQ", 8, 1 << 60)], 5, "no GGUF file"),
    "key": ([*LLAMA, FOUR, struct.pack("<Q", 1 << 60)], 5, "no GGUF file"),
    "layers": ([*LLAMA, whole("llama.block_count", (1 << 32) - 1)], 4, "1 to 10,000"),
    "none": ([*LLAMA, whole("llama.block_count", 0)], 4, "1 to 10,000"),
    "word": ([*LLAMA, text("llama.block_count") + struct.pack("<I", 8) + text("4")], 4, "wrong"),
    "heads": (
        [*LLAMA, FOUR, several("llama.attention.head_count_kv", 4, 2, bytes(8))],
        5,
        "a value for each layer; got 2; limit 4 values",
    ),
    "windows": (
        [*LLAMA, FOUR, WINDOW, several("llama.attention.sliding_window_pattern", 7, 1, b"\1")],
        6,
        "a value for each layer; got 1; limit 4 values",
    ),
}


@pytest.mark.parametrize(("content", "keys", "said"), LYING.values(), ids=list(LYING))
def test_gguf_headers_with_wrong_lengths_are_refused(
    tmp_path: Path, content: list[bytes], keys: int, said: str
) -> None:
    """Nothing is read beyond the end, and nothing is allocated for a length that is not there."""
    pytest.importorskip("gguf", reason="pip install 'kvsim[gguf]'")
    path = tmp_path / "lying.gguf"
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, keys) + b"".join(content))
    with pytest.raises(InputError, match=said) as caught:
        read_gguf(path)
    assert "\n" not in str(caught.value)


def test_gguf_layers_with_windows_and_without_kv_are_found() -> None:
    def windowed(architecture: str, **more: Any) -> str:
        layers = model_of(header(architecture, **more), "x").layers
        return "".join("-" if each is None else "fw"[each.windowed] for each in layers)

    assert windowed("gemma3") == "wwwwwf" * 3
    assert windowed("gemma2") == windowed("gpt-oss") == "wf" * 9
    assert windowed("smallthinker") == "fwww" * 4 + "fw"
    assert windowed("gemma3n", attention__shared_kv_layers=8) == "wwwwf" * 2 + "-" * 8
    assert windowed("x", attention__sliding_window_pattern=[True] * 17 + [False]) == "w" * 17 + "f"
    assert windowed("gemma3", attention__sliding_window=0) == "f" * 18
    assert windowed("y", attention__head_count_kv=[0, 1] * 9) == "-w" * 9
    with pytest.raises(InputError, match="recurrent layers are not sized"):
        model_of(header("mamba", ssm__state_size=16), "x")
    with pytest.raises(InputError, match="lacks a key"):
        model_of({"general.architecture": "gemma3"}, "x")


def test_kv_of_each_layer_is_on_the_device_that_computes_the_layer() -> None:
    model = model_of(header("llama", attention__sliding_window=0), "x")
    settings = ContextSettings(4096, kv_unified=True)
    context = context_of(settings)

    def held(gpu_layers: int, *shares: float) -> list[int]:
        found = device_bytes(model.layers, 0, settings, context, gpu_layers, shares)
        return [num_bytes >> 22 for num_bytes in found]

    assert held(19, 1) == [0, 18]
    assert held(0, 1) == [18, 0]
    assert held(10, 1) == [9, 9]  # the output layer is one of the ten
    assert held(19, 1, 1) == [0, 10, 8]
