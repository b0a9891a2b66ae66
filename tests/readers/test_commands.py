"""Command lines of vLLM, SGLang and TensorRT-LLM, in any kind of file, become scenarios."""

import json
from pathlib import Path
from typing import Any

import pytest

from kvsim.interchange.imported import Imported, import_sources
from kvsim.plumbing.errors import InputError
from kvsim.readers import READERS
from kvsim.readers.detect import read_sources
from kvsim.readers.parsing.python_text import pairs_of
from kvsim.readers.sglang.args import KNOWN, split_attention, take
from kvsim.scenario import Scenario

GIVEN = {"gpu": "h100"}
VLLM, SGLANG = "vllm serve facebook/opt-125m", "python3 -m sglang.launch_server --model-path"


def imported(*sources: str, folder: Path = Path()) -> Imported:
    found = import_sources(sources, GIVEN, folder / "made.toml")
    Scenario.from_table(found.scenario)
    return found


def held(table: dict[str, Any], wanted: dict[str, Any]) -> dict[str, Any]:
    """What the table has of the wanted keys, at any depth."""
    return {
        key: held(table.get(key, {}), value) if isinstance(value, dict) else table.get(key)
        for key, value in wanted.items()
    }


@pytest.mark.parametrize(
    ("flags", "wanted"),
    [
        ("--enable-lora --max-loras 4 --max-lora-rank 32",
         {"memory": {"max_loras": 4, "max_lora_rank": 32}}),
        ("--enable-lora", {"memory": {"max_loras": 1}}),
        ("--enable-lora --max-loras 4 --max-cpu-loras 16 --num-gpu-blocks-override 900",
         {"scheduler": {"max_loras": 4, "max_cpu_loras": 16}}),
        ("""--disable-chunked-mm-input --limit-mm-per-prompt '{"image": 4, "audio": {"count": 1}}'
         """, {"scheduler": {"disable_chunked_mm_input": True, "limit_mm_per_prompt": 5}}),
        ("-tp 4 -dcp 2", {"model": {"tensor_parallel_size": 4, "decode_context_parallel_size": 2}}),
        ("--max-cudagraph-capture-size 64", {"memory": {"max_cudagraph_capture_size": 64}}),
        ("--cudagraph-capture-sizes 1 2 4 96", {"memory": {"max_cudagraph_capture_size": 96}}),
        (
            """--compilation-config '{"cudagraph_capture_sizes": [1, 2, 48]}'""",
            {"memory": {"max_cudagraph_capture_size": 48}},
        ),
        (
            "--compilation-config.max_cudagraph_capture_size 24",
            {"memory": {"max_cudagraph_capture_size": 24}},
        ),
        ("-cc.max-cudagraph-capture-size=24", {"memory": {"max_cudagraph_capture_size": 24}}),
        ("--cuda-graph-sizes [1,8,128,16]", {"memory": {"max_cudagraph_capture_size": 128}}),
        ("--speculative-config.method ngram --speculative-config.num_speculative_tokens=3",
         {"speculative_config": {"method": "ngram", "num_speculative_tokens": 3}}),
        ("""--speculative-config '{"method": "deepseek_mtp", "num_speculative_tokens": 1}'""",
         {"speculative_config": {"method": "mtp", "num_speculative_tokens": 1}}),
        ("""--speculative-config '{"model": "facebook/opt-125m", "num_speculative_tokens": 2}'""",
         {"speculative_config": {"method": "draft_model", "model": "facebook/opt-125m"}}),
    ],
)  # fmt: skip
def test_vllm_flags_become_scenario_keys(flags: str, wanted: dict[str, Any]) -> None:
    found = imported(f"{VLLM} {flags}")
    assert held(found.scenario, wanted) == wanted
    assert not any("not read" in note for note in found.reads[0].description.notes)


def test_numbers_after_a_list_flag_are_not_taken_as_the_model() -> None:
    """Behind a flag that is read, and behind one that is not."""
    for flags in ("--cudagraph-capture-sizes 1 2 4", "--some-sizes 1 2 4"):
        found = imported(f"vllm serve {flags} --model facebook/opt-125m")
        assert found.scenario["model"]["name"] == "facebook/opt-125m"
        found = imported(f"vllm serve {flags} facebook/opt-125m")
        assert found.scenario["model"]["name"] == "facebook/opt-125m"


@pytest.mark.parametrize(
    ("served", "wanted"),
    [
        ("deepseek-ai/DeepSeek-V2-Lite --enable-expert-parallel", {"enable_expert_parallel": True}),
        ("Qwen/Qwen3.5-4B --mamba-ssm-cache-dtype float32", {"mamba_ssm_cache_dtype": "fp32"}),
        ("Qwen/Qwen3-VL-8B-Instruct --language-model-only", {"language_model_only": True}),
    ],
)
def test_model_specific_vllm_flags_become_scenario_keys(
    served: str, wanted: dict[str, Any]
) -> None:
    found = imported(f"vllm serve {served}")
    assert held(found.scenario["model"], wanted) == wanted
    assert not any("not read" in note for note in found.reads[0].description.notes)


def test_vllm_flags_without_effect_are_noted() -> None:
    cases = {
        "--quantization awq": "types are those of the model's config",
        "--max-loras 8": "do nothing without --enable-lora",
        "--max-model-len auto": "longest that fits the pool",
        "--mamba-cache-dtype float32": "memory or time, and are not read: --mamba-cache-dtype",
        "--config none.yaml": "no such file beside it",
        "--compilation-config 3": "flags that are not read: --compilation-config",
        "--compilation-config.level 3": "keys of --compilation-config that are not read: level",
    }
    for flags, words in cases.items():
        notes = imported(f"{VLLM} {flags}").reads[0].description.notes
        assert any(words in note for note in notes), flags
    for said, words in (
        ({"method": "medusa", "num_speculative_tokens": 2}, "left out: speculative_config.method"),
        ({"method": "ngram", "num_speculative_tokens": 2, "prompt_lookup_max": 4},
         "not read: prompt_lookup_max"),
    ):  # fmt: skip
        found = imported(f"{VLLM} --speculative-config '{json.dumps(said)}'")
        assert any(words in note for note in found.notes), found.notes
    found = imported(f"{VLLM} --speculative-config.method ngram "
                     "--speculative-config.num_speculative_tokens 2")  # fmt: skip
    assert any("acceptance_rate = 0.7: no source says" in line for line in found.assumed)


@pytest.mark.parametrize("value", ["{method: ngram}", "[1]", "words"])
def test_speculative_config_that_is_not_an_object_is_refused(value: str) -> None:
    with pytest.raises(InputError, match="speculative_config"):
        imported(f"{VLLM} --speculative-config '{value}'")


CONFIG = """
model: facebook/opt-125m
max-model-len: 1024   # short
gpu_memory_utilization: "0.5"
enable-prefix-caching: false
speculative-config:
  method: ngram
  num_speculative_tokens: 4
tensor-parallel-size: 2
"""


def test_arguments_file_is_read_alone_or_with_its_script(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(CONFIG)
    script = tmp_path / "serve.sh"
    script.write_text("vllm serve --config config.yaml --max-model-len 512\n")
    wanted = {
        "model": {"name": "facebook/opt-125m", "tensor_parallel_size": 2, "max_model_len": 1024},
        "memory": {"gpu_memory_utilization": 0.5},
        "speculative_config": {"method": "ngram", "num_speculative_tokens": 4},
    }
    alone = imported(str(path)).scenario
    assert held(alone, wanted) == wanted
    assert alone["allocator"][0]["enable_prefix_caching"] is False
    wanted["model"]["max_model_len"] = 512  # a flag counts before the file
    assert held(imported(str(script)).scenario, wanted) == wanted


HELM = """
servingEngineSpec:
  modelSpec:
  - name: "first"
    repository: "vllm/vllm-openai"
    tag: "v0.19.1"
    modelURL: "facebook/opt-125m"
    vllmConfig:
      maxModelLen: 1024
      enablePrefixCaching: false
      extraArgs: ["--gpu-memory-utilization", "0.5", "--max-num-seqs=7"]
"""
SECOND = '  - name: "second"\n    modelURL: "other/one"\n    vllmConfig:\n      maxModelLen: 4\n'


def test_helm_values_are_read_and_each_model_is_a_scenario(tmp_path: Path) -> None:
    path = tmp_path / "values.yaml"
    path.write_text(HELM)
    found = imported(str(path))
    wanted = {
        "model": {"name": "facebook/opt-125m", "max_model_len": 1024},
        "memory": {"gpu_memory_utilization": 0.5, "engine_version": "0.19.1"},
        "scheduler": {"max_num_seqs": 7},
    }
    assert held(found.scenario, wanted) == wanted
    path.write_text(HELM + SECOND)
    one, two = read_sources([str(path)], [])
    assert (one.description.settings.max_model_len, two.description.settings.max_model_len) == (
        1024,
        4,
    )


COMPOSE = """
services:
  server:
    image: {image}
    command: >
      {command}
    environment:
      - HF_TOKEN=sk-secret
"""


@pytest.mark.parametrize(
    ("image", "command", "form"),
    [
        ("vllm/vllm-openai:v0.19.1", "--model facebook/opt-125m --max-model-len 512",
         "vllm-command"),
        ("lmsysorg/sglang:v0.5.3", f"{SGLANG} facebook/opt-125m --context-length 512",
         "sglang-command"),
        ("lmsysorg/sglang:latest", "sglang serve facebook/opt-125m --context-length 512",
         "sglang-command"),
        ("nvcr.io/nvidia/tensorrt-llm/release:1.0.0",
         "trtllm-serve facebook/opt-125m --max_seq_len 512", "trtllm-command"),
    ],
)  # fmt: skip
def test_compose_files_of_vllm_sglang_and_tensorrt_llm_are_read(
    tmp_path: Path, image: str, command: str, form: str
) -> None:
    path = tmp_path / "compose.yaml"
    path.write_text(COMPOSE.format(image=image, command=command))
    found = imported(str(path))
    (read,) = found.reads
    assert read.format == form
    assert read.description.settings.engine_version in (image.partition(":v")[2] or None, "1.0.0")
    assert found.scenario["model"]["name"] == "facebook/opt-125m"
    assert found.scenario["model"]["max_model_len"] == 512
    assert "sk-secret" not in json.dumps(found.as_dict(), default=str)


@pytest.mark.parametrize(
    ("image", "flag"),
    [("vllm/vllm-openai:v0.11.0", "--model"), ("lmsysorg/sglang:v0.5.9", "--model-path")],
)
def test_two_servers_in_one_compose_file_are_refused_as_one_scenario(
    tmp_path: Path, image: str, flag: str
) -> None:
    """The flags of both were taken for those of one."""
    services = [
        f"  {name}:\n    image: {image}\n    command: ['python3', '-m', 'sglang.launch_server', "
        f"'{flag}', '{model}']\n"
        if "sglang" in image
        else f"  {name}:\n    image: {image}\n    command: ['{flag}', '{model}']\n"
        for name, model in (("chat", "Qwen/Qwen3-8B"), ("coder", "facebook/opt-125m"))
    ]
    path = tmp_path / "compose.yaml"
    path.write_text("services:\n" + services[0])
    assert imported(str(path)).scenario["model"]["name"] == "Qwen/Qwen3-8B"
    path.write_text("services:\n" + "".join(services))
    with pytest.raises(InputError, match=r"several results or servers, .*got 2"):
        imported(str(path))


SERVED = "vllm serve facebook/opt-125m --max-model-len 512"


@pytest.mark.parametrize(
    "before",
    ["CUDA_VISIBLE_DEVICES=0,1 VLLM_USE_V1=1 ", "uv run ", "sudo ", "nohup ", "/opt/venv/bin/",
     "$ ", "srun -n 1 ", " "],
)  # fmt: skip
def test_command_after_shell_prefixes_is_recognised(before: str) -> None:
    """Only what began with the program's own name was; the rest was "no such file or folder"."""
    wanted = {"name": "facebook/opt-125m", "max_model_len": 512}
    found = imported(f"{before}{SERVED} > server.log 2>&1 &")
    assert held(found.scenario["model"], wanted) == wanted


@pytest.mark.parametrize(
    "line", ["no such file.log", "vllm-log=no such file.log", "lmdeploy serve api_server a/b"]
)
def test_import_argument_that_is_no_file_and_no_command_is_refused(line: str) -> None:
    with pytest.raises(InputError, match="no such file"):
        imported(line)


@pytest.mark.parametrize("model", ["$MODEL", "${MODEL}", "$(MODEL)"])
def test_model_in_an_unset_variable_is_refused(model: str) -> None:
    with pytest.raises(InputError, match=r"shell variable.*write its value"):
        imported(f"vllm serve {model} --max-model-len 512")


SHELL = """
containers:
- name: server
  image: {image}
  command: ["/bin/sh", "-c"{inside}]
  {args}
"""


@pytest.mark.parametrize(
    ("image", "command"),
    [
        ("vllm/vllm-openai:v0.19.1", SERVED),
        ("vllm/vllm-openai:v0.19.1",
         "python3 -m vllm.entrypoints.openai.api_server --model facebook/opt-125m "
         "--max-model-len 512"),
        ("lmsysorg/sglang:v0.5.3", f"{SGLANG} facebook/opt-125m --context-length 512"),
        ("nvcr.io/nvidia/tensorrt-llm/release:1.0.0",
         "trtllm-serve facebook/opt-125m --max_seq_len 512"),
        ("ubuntu", "llama-server -m opt-125m.gguf -c 512 -np 1"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("form", ["inside", "flow", "block", "text"])
def test_command_that_a_manifest_passes_to_a_shell_is_read(
    tmp_path: Path, image: str, command: str, form: str
) -> None:
    """Such a command in a list in brackets was "No closing quotation"."""
    args = {
        "inside": "",
        "flow": f'args: ["{command}"]',
        "block": f'args:\n  - "{command}"',
        "text": f"args:\n  - |\n    {command}",
    }[form]
    inside = f', "{command}"' if form == "inside" else ""
    path = tmp_path / "deployment.yaml"
    path.write_text(SHELL.format(image=image, args=args, inside=inside))
    (read,) = read_sources([str(path)], [])
    assert read.description.settings.model in ("facebook/opt-125m", "opt-125m")
    assert 512 in (read.description.settings.max_model_len, read.description.settings.n_ctx)


def test_manifest_with_alphabetical_keys_is_read(tmp_path: Path) -> None:
    """As `kubectl get -o yaml` writes it; "image:" was taken for the model."""
    path = tmp_path / "pod.yaml"
    path.write_text(
        "spec:\n  initContainers:\n"
        "  - args: [download, other/one]\n    command: [python3, load.py]\n"
        "    image: vllm/vllm-openai:v0.19.1\n"
        "  containers:\n  - args:\n    - --max-model-len=512\n    - facebook/opt-125m\n"
        "    command:\n    - vllm\n    - serve\n    image: vllm/vllm-openai:v0.19.1\n"
    )
    wanted = {"name": "facebook/opt-125m", "max_model_len": 512}
    assert held(imported(str(path)).scenario["model"], wanted) == wanted


def test_sglang_flags_become_scenario_keys() -> None:
    found = imported(
        f"{SGLANG} facebook/opt-125m --tp 1 --mem-fraction-static 0.6 --page-size 16 "
        "--chunked-prefill-size 256 --max-running-requests 9 --schedule-policy lpm "
        "--max-total-tokens 4096 "
        "--enable-mixed-chunk --disable-radix-cache --schedule-conservativeness=0.5 --log-level x"
    )
    wanted = {
        "memory": {"mem_fraction_static": 0.6, "kv_cache_tokens": 4096},
        "scheduler": {
            "kind": "sglang", "chunked_prefill_size": 256, "max_running_requests": 9,
            "schedule_policy": "lpm", "enable_mixed_chunk": True, "schedule_conservativeness": 0.5,
        },
    }  # fmt: skip
    assert held(found.scenario, wanted) == wanted
    assert found.scenario["allocator"] == [
        {"kind": "radix", "page_size": 16, "disable_radix_cache": True}
    ]
    assert found.reads[0].description.notes == ("flags that are not read: --log-level",)
    other = imported(f"{SGLANG} facebook/opt-125m --schedule-policy slowest")
    assert any("slowest is not one" in note for note in other.reads[0].description.notes)


def test_sglang_stages_are_imported_if_the_pool_size_is_known() -> None:
    flags = f"{SGLANG} facebook/opt-125m --pp-size 2 --pp-max-micro-batch-size 12"
    found = imported(f"{flags} --max-total-tokens 6000").scenario
    assert found["model"]["pipeline_parallel_size"] == 2
    assert found["memory"] == {"kv_cache_tokens": 6000}
    assert found["scheduler"]["pp_max_micro_batch_size"] == 12
    assert "pipeline_parallel_size" not in imported(flags).scenario["model"]


def test_sglang_priority_flags_become_scenario_keys() -> None:
    found = imported(
        f"{SGLANG} facebook/opt-125m --schedule-policy lof --enable-priority-scheduling "
        "--schedule-low-priority-values-first --priority-scheduling-preemption-threshold 3"
    )
    wanted = {
        "scheduler": {
            "schedule_policy": "lof",
            "enable_priority_scheduling": True,
            "schedule_low_priority_values_first": True,
            "priority_scheduling_preemption_threshold": 3,
        }
    }
    assert held(found.scenario, wanted) == wanted
    assert not found.reads[0].description.notes


def test_tensorrt_llm_flags_become_scenario_keys() -> None:
    found = imported("trtllm-serve facebook/opt-125m --tp_size 1 --max_batch_size 7 "
                     "--max_num_tokens 999 --kv_cache_free_gpu_memory_fraction 0.5 "
                     "--num_postprocess_workers 8")  # fmt: skip
    wanted = {"kind": "trt-llm", "max_num_seqs": 7, "max_num_batched_tokens": 999}
    assert held(found.scenario["scheduler"], wanted) == wanted
    (note,) = found.reads[0].description.notes
    assert "--num_postprocess_workers" in note
    assert found.scenario["memory"] == {"free_gpu_memory_fraction": 0.5}


OPTIONS = """\
tensor_parallel_size: 1
max_batch_size: 7
max_seq_len: 900
kv_cache_config:
    free_gpu_memory_fraction: 0.6
    enable_block_reuse: false
    dtype: fp8
    host_cache_size: 1000000
    tokens_per_block: 64
scheduler_config:
    capacity_scheduler_policy: MAX_UTILIZATION
moe_config:
    backend: TRTLLM
"""


def test_tensorrt_llm_yaml_options_become_scenario_keys(tmp_path: Path) -> None:
    path = tmp_path / "extra.yaml"
    path.write_text(OPTIONS)
    found = imported("trtllm-serve facebook/opt-125m", str(path))
    assert [read.format for read in found.reads] == ["trtllm-command", "trtllm-config"]
    wanted = {
        "kind": "trt-llm", "max_num_seqs": 7, "capacity_scheduler_policy": "max-utilization",
    }  # fmt: skip
    assert held(found.scenario["scheduler"], wanted) == wanted
    assert found.scenario["memory"] == {"free_gpu_memory_fraction": 0.6}
    assert held(found.scenario["model"], {"kv_cache_dtype": 0, "max_model_len": 0}) == {
        "kv_cache_dtype": "fp8", "max_model_len": 900,
    }  # fmt: skip
    (allocator,) = found.scenario["allocator"]
    assert allocator["block_size"] == 64
    assert allocator["enable_prefix_caching"] is False
    (note,) = found.reads[1].description.notes
    assert note == "options that are not read: kv_cache_config.host_cache_size, moe_config.backend"


def test_tensorrt_llm_max_tokens_is_the_pool_size_with_a_note(tmp_path: Path) -> None:
    path = tmp_path / "extra.yaml"
    path.write_text('kv_cache_config: {"max_tokens": 4096}\n')
    found = imported("trtllm-serve facebook/opt-125m", str(path))
    assert found.scenario["memory"] == {"num_gpu_blocks": 4096 // 32}
    assert "max_tokens is taken as the pool" in found.reads[1].description.notes[0]
    path.write_text("max_num_tokens: many\nkv_cache_config:\n  dtype: auto\n")
    with pytest.raises(InputError, match="max_num_tokens"):
        imported("trtllm-serve facebook/opt-125m", str(path))


@pytest.mark.parametrize(
    "line",
    ["vllm", "vllm ", "sglang serve", "trtllm-serve", "docker run x", "python a.py",
     f"{SGLANG}", "trtllm-serve --max_batch_size many", "vllm serve --max-model-len $LEN x"],
)  # fmt: skip
def test_invalid_command_line_is_a_one_line_error(line: str) -> None:
    with pytest.raises(InputError) as raised:
        imported(line)
    assert len(str(raised.value)) > 20


def test_explicit_reader_name_overrides_detection() -> None:
    assert "vllm-config" in READERS
    (read,) = read_sources(["docker run lmsysorg/sglang:v0.5.1 sglang serve a/b --tp 2"], [])
    assert (read.format, read.description.settings.tensor_parallel_size) == ("sglang-command", 2)


DP = f"{SGLANG} deepseek-ai/DeepSeek-R1 --tp 8 --max-running-requests 256"


@pytest.mark.parametrize("flags", ["--dp 4 --enable-dp-attention", "--attn-dp-size 4"])
def test_sglang_dp_attention_settings_are_divided_per_rank(flags: str) -> None:
    (read,) = read_sources([f"{DP} --chunked-prefill-size 16384 --ep-size 8 {flags}"], [])
    found = read.description.settings
    assert (found.tensor_parallel_size, found.data_parallel_size) == (2, 4)
    assert (found.attention_dp_size, found.enable_expert_parallel) == (4, True)
    assert (found.max_num_seqs, found.chunked_prefill_size) == (64, 4096)
    assert found.schedule_conservativeness == 0.3


def test_sglang_dp_without_dp_attention_divides_nothing() -> None:
    (read,) = read_sources([f"{DP} --dp 4 --ep-size 1"], [])
    found = read.description.settings
    assert (found.tensor_parallel_size, found.data_parallel_size) == (8, 4)
    assert (found.attention_dp_size, found.enable_expert_parallel) == (None, False)
    assert (found.max_num_seqs, found.schedule_conservativeness) == (256, None)


def test_logged_chunk_size_of_dp_attention_is_already_per_rank() -> None:
    log = (
        "server_args=ServerArgs(model_path='deepseek-ai/DeepSeek-R1', tp_size=8, dp_size=8, "
        "enable_dp_attention=True, chunked_prefill_size=1024, max_running_requests=512, "
        "schedule_conservativeness=0.3)\n"
    )
    found: dict[str, object] = {}
    pairs = pairs_of(log.partition("ServerArgs")[2], {*KNOWN})
    take(found, pairs, "log")
    split_attention(found, "log", resolved=True)
    assert found["chunked_prefill_size"] == 1024
    assert (found["tensor_parallel_size"], found["max_num_seqs"]) == (1, 64)
    assert found["schedule_conservativeness"] == 0.3


def test_tp_size_not_divisible_by_attn_dp_size_is_refused() -> None:
    with pytest.raises(InputError, match="a multiple of attn_dp_size = 3"):
        read_sources([f"{DP} --attn-dp-size 3"], [])


def test_misspelt_flag_gets_a_suggestion_and_unique_prefix_is_read() -> None:
    found = imported(
        f"{VLLM} --tensor-paralel-size 2 --max-num-seq 64 --port 80 --cpu-offload-gb 4"
    )
    assert found.scenario["scheduler"]["max_num_seqs"] == 64
    assert found.reads[0].description.notes == (
        "--tensor-paralel-size is not read: did you mean --tensor-parallel-size?",
        "flags that change memory or time, and are not read: --cpu-offload-gb",
        "flags that are not read: --port",
    )
    command = "python -m sglang.launch_server --model-path Qwen/Qwen3-8B"
    drafts = "--speculative-algorithm EAGLE3 --speculative-num-steps 3 --host 0.0.0.0"
    notes = imported(f"{command} {drafts}").reads[0].description.notes
    assert notes == (
        "flags that change memory or time, and are not read: --speculative-algorithm, "
        "--speculative-num-steps",
        "flags that are not read: --host",
    )


def test_ambiguous_flag_prefix_is_not_matched() -> None:
    found = imported(f"{VLLM} --max-num 64").reads[0].description
    assert found.settings.max_num_seqs is None
    assert any("--max-num" in note for note in found.notes)
