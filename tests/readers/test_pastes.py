"""A paste is several sources, and what they say together is checked."""

import json
from pathlib import Path

import pytest
from support.import_samples import MODEL_CONFIG, SAMPLES

from kvsim.interchange.imported import Imported, import_sources, write_imported
from kvsim.readers.detect import read_sources
from kvsim.scenario import Scenario

COMMANDS = {
    "vllm-log": "vllm serve facebook/opt-125m --port 8000 --swap-space 8",
    "sglang-log": "python3 -m sglang.launch_server --model-path facebook/opt-125m --port 8",
    "trtllm-log": "trtllm-serve facebook/opt-125m --port 8000",
    "llama-log": "./llama-server -m opt-125m.gguf --port 8000 --threads 8",
}


@pytest.mark.parametrize("form", COMMANDS)
@pytest.mark.parametrize("prompt", ["$ ", "root@host:~# ", ""])
def test_log_pasted_below_its_command_is_two_sources(
    tmp_path: Path, form: str, prompt: str
) -> None:
    log = SAMPLES[form](tmp_path)
    (alone,) = read_sources([str(log)], [])
    words = COMMANDS[form].replace(" --port", " \\\n    --port")
    log.write_text(f"{prompt}{words}\n{log.read_text()}")
    command, read = read_sources([str(log)], [])
    assert command.format == form.replace("-log", "-command")
    assert command.description.settings.model in ("facebook/opt-125m", "opt-125m")
    assert any("--port" in note for note in command.description.notes)
    assert read.description.settings == alone.description.settings
    assert read.description.notes == alone.description.notes


def test_code_blocks_of_a_pasted_page_are_sources(tmp_path: Path) -> None:
    bench = SAMPLES["vllm-bench"](tmp_path).read_text()
    log = SAMPLES["vllm-log"](tmp_path).read_text()
    config = json.dumps(MODEL_CONFIG)
    page = tmp_path / "issue.md"
    page.write_text(
        "It's slow.\n\n```bash\nvllm serve facebook/opt-125m --max-num-seqs 8\n```\n\nThe log:\n"
        f"```text\n{log}```\n~~~json\n{bench}\n~~~\nconfig.json:\n```\n{config}\n```\n"
    )
    reads = read_sources([str(page)], [])
    forms = ["vllm-command", "vllm-log", "vllm-bench", "model-config"]
    assert [read.format for read in reads] == forms
    out = tmp_path / "out" / "made.toml"
    written = write_imported(import_sources([str(page)], {"gpu": "h100"}, out), out)
    assert out.with_name("made.config.json") in written
    model = Scenario.load(out).model
    assert str(model.hf_config) == "made.config.json"
    assert model.build(out.parent).num_layers == 3


def test_config_of_an_unsupported_model_is_noted(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text('{"model_type": "nobody", "architectures": ["Nobody"]}')
    (read,) = read_sources([str(path)], [])
    assert any("kvsim does not know the model" in note for note in read.description.notes)


ARGUMENTS = "server_args=ServerArgs(model_path='Qwen/Qwen3-8B', tp_size={tp}, page_size=1)\n"
POOL = (
    "[2026-06-10 20:35:10 TP0] Load weight begin. avail mem={free} GB\n"
    "[2026-06-10 20:35:15 TP0] Load weight end. type=Qwen3ForCausalLM, avail mem=60.00 GB, mem "
    "usage=15.28 GB.\n"
    "[2026-06-10 20:35:20 TP0] KV Cache is allocated. dtype: torch.bfloat16, #tokens: 100000, "
    "K size: {half} GB, V size: {half} GB\n"
    "[2026-06-10 20:35:30 TP0] max_total_num_tokens=100000, chunked_prefill_size=8192, "
    "max_prefill_tokens=16384, max_running_requests=2048, context_len=2048\n"
)


def sglang(folder: Path, *, tp: int = 1, free: float = 78.0, half: float = 6.87) -> Imported:
    """100,000 tokens of 147,456 bytes are 13.73 GiB."""
    path = folder / "sglang.log"
    path.write_text(ARGUMENTS.format(tp=tp) + POOL.format(free=free, half=half))
    return import_sources([str(path)], {"gpu": "h100"}, folder / "made.toml")


def test_sglang_log_gives_weights_free_memory_and_kv_bytes(tmp_path: Path) -> None:
    found = sglang(tmp_path).merged.settings
    assert (found.weights_gib, found.free_memory_gib) == (15.28, 78.0)
    assert found.available_kv_gib == pytest.approx(13.74)
    assert not any("GPU" in note for note in sglang(tmp_path).notes)


def test_logged_kv_bytes_that_do_not_match_tokens_are_noted(tmp_path: Path) -> None:
    (doubt,) = (note for note in sglang(tmp_path, half=3.44).notes if "split over" in note)
    assert "split over 2 times as many GPUs" in doubt
    assert not any("split over" in note for note in sglang(tmp_path, tp=2, half=3.44).notes)
    assert any("another model" in note for note in sglang(tmp_path, half=13.74).notes)


def test_weights_larger_than_mem_fraction_static_are_noted(tmp_path: Path) -> None:
    path = tmp_path / "sglang.log"
    path.write_text(
        "$ sglang serve --model-path Qwen/Qwen3-8B --mem-fraction-static 0.5\n"
        "Load weight end. avail mem=12.25 GB, mem usage=60.65 GB.\n"
    )
    made = import_sources([str(path)], {"gpu": "h100"}, tmp_path / "made.toml")
    assert made.scenario["memory"] == {"mem_fraction_static": 0.5}
    assert any("does not start" in note for note in made.notes)
    assert any("60.65 GiB of weights are not used" in note for note in made.notes)


@pytest.mark.parametrize(("free", "words"), [(36.5, "others used the GPU"), (130.0, "another GPU")])
def test_gpu_memory_in_use_before_loading_is_noted(tmp_path: Path, free: float, words: str) -> None:
    assert any(words in note for note in sglang(tmp_path, free=free).notes)


def test_page_size_forced_by_sglangs_backend_is_used(tmp_path: Path) -> None:
    path = tmp_path / "sglang.log"
    path.write_text(
        "TensorRT-LLM MHA only supports page_size of 16, 32 or 64, changing page_size from None "
        "to 64.\n" + POOL.format(free=78, half=6.87)
    )
    named = {"gpu": "h100", "model": "Qwen/Qwen3-8B"}
    made = import_sources([str(path)], named, tmp_path / "made.toml")
    assert made.scenario["allocator"][0]["page_size"] == 64
