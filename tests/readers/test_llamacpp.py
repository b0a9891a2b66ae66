"""What llama-server and Ollama leave behind, as the server that it describes."""

import json
from pathlib import Path

import pytest
from support.import_samples import SAMPLES

from kvsim.interchange.imported import Imported, import_sources
from kvsim.plumbing.errors import InputError
from kvsim.readers.detect import read_sources

ROW = 2 * 12 * 768  # elements of K and V of a token of opt-125m
SLOT_LINE = {"id": 0, "n_ctx": 2048, "is_processing": False, "prompt": "not to be kept"}


def imported(*sources: str, **named: str) -> Imported:
    return import_sources(sources, {"gpu": "rtx-4090", **named}, Path("out.toml"))


def test_llama_server_log_gives_pool_slots_and_requests(tmp_path: Path) -> None:
    found = imported(str(SAMPLES["llama-log"](tmp_path)))
    assert found.scenario["memory"] == {"kv_cache_bytes": 144 << 20}
    assert found.scenario["allocator"] == [{"kind": "cells"}]
    expected = {"kind": "llama-server", "n_parallel": 2, "kv_unified": False, "cache_ram": 8192}
    assert found.scenario["scheduler"] == expected
    (read,) = found.reads
    assert read.description.requests is not None
    first, second = read.description.requests.rows
    assert (first.prompt_tokens, first.output_tokens, first.cached_tokens) == (1200, 20, 500)
    assert first.arrival_ns == 33_442_579_000
    assert (first.first_token_ns, first.last_token_ns) == (34_342_579_000, 34_942_579_000)
    assert (second.prompt_tokens, second.output_tokens, second.cached_tokens) == (300, 25, 0)
    assert any("1 requests without an end" in note for note in read.description.notes)
    assert found.scenario["workload"]["kind"] == "trace"


def test_llama_server_flags_give_the_servers_pool_size(tmp_path: Path) -> None:
    found = imported(str(SAMPLES["llama-command"](tmp_path)))
    assert found.scenario["model"]["kv_cache_dtype"] == "q8_0"
    assert found.scenario["memory"] == {"kv_cache_bytes": 4096 * ROW * 34 // 32}
    scheduler = found.scenario["scheduler"]
    assert scheduler["cache_idle_slots"] is False
    assert (scheduler["cache_ram"], scheduler["n_parallel"]) == (512, 2)


def test_unified_and_separate_slot_buffers_are_distinguished(tmp_path: Path) -> None:
    """Four slots without -np share 1,024 cells; three with -np get 512 each, 1,536 in all."""
    for flags, cells in (("", 1024), ("-np 3", 1536), ("-np 3 -kvu", 1024)):
        found = imported(f"llama-server -m opt-125m.gguf -c 1024 {flags}")
        assert found.scenario["memory"] == {"kv_cache_bytes": cells * ROW * 2}
    (tmp_path / "slots.json").write_text(json.dumps([SLOT_LINE, SLOT_LINE | {"id": 1}]))
    alone = imported(str(tmp_path / "slots.json"), model="opt-125m")
    assert alone.scenario["memory"] == {"kv_cache_bytes": 4096 * ROW * 2}
    assert any("share one buffer" in note for note in alone.notes)
    both = imported(str(tmp_path / "slots.json"), "llama-server -m opt-125m.gguf -np 2 -kvu")
    assert both.scenario["memory"] == {"kv_cache_bytes": 2048 * ROW * 2}


def test_ollama_context_is_multiplied_by_parallel_requests(tmp_path: Path) -> None:
    found = imported(str(SAMPLES["ollama"](tmp_path)), model="opt-125m")
    assert found.scenario["memory"] == {"kv_cache_bytes": 2 * 4096 * ROW * 34 // 32}
    text = "OLLAMA_NUM_PARALLEL=20 OLLAMA_CONTEXT_LENGTH=32768 ollama serve"
    (read,) = read_sources([text], [])
    assert read.description.settings.n_ctx == 655_360  # ollama/ollama#10735


def test_unsupported_settings_are_noted() -> None:
    found = imported("llama-server -m opt-125m.gguf -c 512 -ctk q8_0 -ngl 10 -md small.gguf")
    (read,) = found.reads
    notes = " ".join(read.description.notes)
    assert "K is q8_0 and V is f16" in notes
    assert "n_gpu_layers 10" in notes
    assert "model_draft" in notes


@pytest.mark.parametrize(
    "words", ["-c many", "-ctk q9_9", "-np", "-c $CTX", "--cache-ram x", "-sps 7"]
)
def test_invalid_llama_server_flag_is_a_one_line_error(words: str) -> None:
    with pytest.raises(InputError):
        imported(f"llama-server -m opt-125m.gguf {words}")
