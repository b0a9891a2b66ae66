"""Flags in scripts, manifests and YAML become the same words, or are asked for by name."""

import contextlib
import time
from pathlib import Path

import pytest
from support.launch_forms import FORMS

from kvsim.interchange.imported import Imported, import_sources
from kvsim.plumbing.errors import InputError
from kvsim.readers.parsing.shell import read_script
from kvsim.readers.parsing.shell_words import shown


def imported(folder: Path, text: str, **given: object) -> Imported:
    path = folder / "source.txt"
    path.write_text(text)
    variables = given.pop("variables", None)
    assert variables is None or isinstance(variables, dict)
    named = {"gpu": "h100", **given}
    return import_sources([str(path)], named, folder / "made.toml", variables=variables)


@pytest.mark.parametrize("form", FORMS)
def test_flags_are_read_from_scripts_manifests_and_yaml(tmp_path: Path, form: str) -> None:
    settings = imported(tmp_path, FORMS[form]).merged.settings
    found = (settings.model, settings.max_model_len, settings.max_num_seqs, settings.kv_cache_dtype)
    assert found == ("facebook/opt-125m", 512, 7, "fp8")


@pytest.mark.parametrize(
    "text",
    ["vllm serve $MODEL --max-model-len $LEN", "services:\n  a:\n    image: vllm/vllm-openai:v1\n"
     "    command: --model ${MODEL} --max-model-len $LEN\n"],
)  # fmt: skip
def test_unset_shell_variables_are_refused_until_options_set_them(
    tmp_path: Path, text: str
) -> None:
    with pytest.raises(InputError, match=r"\$MODEL \(model\), \$LEN \(max_model_len\)") as raised:
        imported(tmp_path, text)
    assert "--model --variable LEN=VALUE" in str(raised.value)
    made = imported(tmp_path, text, model="facebook/opt-125m", variables={"LEN": "64"})
    assert made.merged.settings.max_model_len == 64


def test_unset_variable_that_may_hold_flags_is_refused_but_a_port_is_not(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"\$EXTRA \(words that may be flags\)"):
        imported(tmp_path, "vllm serve facebook/opt-125m --port $PORT $EXTRA")
    made = imported(
        tmp_path,
        'vllm serve facebook/opt-125m --port $PORT $EXTRA "$@"',
        variables={"EXTRA": "--max-num-seqs 9"},
    )
    assert made.merged.settings.max_num_seqs == 9


def test_shell_arithmetic_is_computed_once_its_variables_are_set(tmp_path: Path) -> None:
    text = "LEN=100\nvllm serve facebook/opt-125m --max-model-len $((LEN * 2 + $MORE))"
    with pytest.raises(InputError, match=r"\$MORE \(max_model_len\)"):
        imported(tmp_path, text)
    made = imported(tmp_path, text, variables={"MORE": "56"})
    assert made.merged.settings.max_model_len == 256


def test_invalid_yaml_with_flags_is_refused(tmp_path: Path) -> None:
    text = FORMS["kubernetes"]
    with pytest.raises(InputError, match="not YAML"):
        imported(tmp_path, f"a:\n  b: 1\n c: 2\n{text}")


def test_manifest_without_readable_flags_is_noted(tmp_path: Path) -> None:
    text = "template:\n  image: vllm/vllm-openai:v0.19.1\n  serve_args: ['--max-num-seqs=7']\n"
    made = imported(tmp_path, text, model="facebook/opt-125m")
    assert "no flag of the server is found in it" in made.reads[0].description.notes


def test_helm_template_with_several_words_needs_a_variable(tmp_path: Path) -> None:
    text = "spec:\n  containers:\n  - command: [sh, -c, 'vllm serve facebook/opt-125m " \
        "--data-parallel-size {{ or .Spec.Data 1 }}']\n"  # fmt: skip
    with pytest.raises(InputError, match=r"\$or_Spec_Data_1 \(data_parallel_size\)"):
        imported(tmp_path, text)
    made = imported(tmp_path, text, variables={"or_Spec_Data_1": "2"})
    assert made.merged.settings.data_parallel_size == 2


def test_variables_built_in_a_loop_are_refused_by_name(tmp_path: Path) -> None:
    text = (
        "TP=1\nSIZES=4\nfor TP in 1 2; do\n  SIZES+=,$TP\ndone\nLEN=$(cat len.txt)\n"
        "vllm serve facebook/opt-125m -tp $TP --cudagraph-capture-sizes $SIZES --max-model-len $LEN"
    )
    with pytest.raises(InputError, match=r"\$TP .*\$SIZES .*\$LEN") as raised:
        imported(tmp_path, text)
    assert "--variable SIZES=VALUE --variable LEN=VALUE" in str(raised.value)


def test_defaults_and_conditional_values_of_a_script_are_noted(tmp_path: Path) -> None:
    made = imported(
        tmp_path,
        'SEQS=3\nPORT=${PORT:-1}\nif [ "$BIG" = 1 ]; then\n  SEQS=8\nfi\n'
        "vllm serve facebook/opt-125m --max-num-seqs $SEQS --max-model-len ${LEN:-64}",
    )
    notes = made.reads[0].description.notes
    assert "$LEN = 64: the script's own default" in notes
    assert any("$SEQS has several values" in note for note in notes)
    assert not any("PORT" in note for note in notes)


def test_engine_environment_variables_are_noted_without_secrets(tmp_path: Path) -> None:
    made = imported(
        tmp_path,
        "export VLLM_USE_V1=0 VLLM_API_KEY=sk-secret\nNCCL_P2P_DISABLE=1 vllm serve "
        "facebook/opt-125m",
    )
    (note,) = (note for note in made.reads[0].description.notes if "variables" in note)
    assert note.endswith("not read: NCCL_P2P_DISABLE, VLLM_USE_V1")


def test_yaml_keys_are_read_as_flags_and_unknown_ones_noted(tmp_path: Path) -> None:
    made = imported(
        tmp_path,
        "model: facebook/opt-125m\nno-enable-prefix-caching: true\n"
        "no-enable-chunked-prefill: true\n"
        "cpu-offload-gb: 10\nstream-interval: 20\nsome-new-key: 1\n",
    )
    read = made.reads[0].description
    assert read.settings.enable_prefix_caching is False
    assert read.settings.enable_chunked_prefill is False
    said = " ".join(read.notes)
    assert "change memory or time, and are not read: --cpu-offload-gb" in said
    assert "--some-new-key, --stream-interval" in said


def test_lmcache_in_helm_values_becomes_a_tier(tmp_path: Path) -> None:
    made = imported(
        tmp_path,
        "servingEngineSpec:\n  modelSpec:\n  - modelURL: facebook/opt-125m\n    lmcacheConfig:\n"
        '      enabled: true\n      cpuOffloadingBufferSize: "20"\n      enableController: true\n',
    )
    assert made.scenario["tier"] == [{"kind": "lmcache", "max_local_cpu_size": 20.0}]
    assert "lmcacheConfig.enableController" in " ".join(made.reads[0].description.notes)


def test_shell_words_are_parsed_as_by_a_shell() -> None:
    script = read_script(
        "a 'b c' \"d $X e\" f\\ g `h` $(i j) ${K%x} # l\nX=1; m $X \\\n n || o <<< p > q 2>&1"
    )
    assert [[*map(shown, each.words)] for each in script.commands][:2] == [
        ["a", "b c", "d $X e", "f g", "$(h)", "$(i j)", "$K"],
        ["m", "1", "n"],
    ]


@pytest.mark.parametrize(
    "text",
    ["${" * 20_000, "$(" * 20_000, "'a " * 20_001, '"\\"' * 20_000, "x=(" * 20_000,
     "`a" * 20_001, "${A:-" * 5_000 + "}" * 5_000, "a=$a$a\n" * 400],
)  # fmt: skip
def test_script_parsing_time_is_proportional_to_its_length(text: str) -> None:
    begun = time.process_time()
    with contextlib.suppress(InputError):
        read_script(f"vllm serve m\n{text}")
    assert time.process_time() - begun < 2


@pytest.mark.parametrize(
    "rest", ['args: ["' + '\\"\\"' * 20_000, "args: [" * 20_000, "args: " + "- " * 20_000,
             "a: &a [1]\n" + "<<: [*a, *a]\n" * 500, "args: ['" + "''" * 20_001]
)  # fmt: skip
def test_manifest_parsing_time_is_proportional_to_its_length(tmp_path: Path, rest: str) -> None:
    begun = time.process_time()
    with pytest.raises(InputError):
        imported(tmp_path, f'command: ["vllm","serve","x"]\n{rest}\n')
    assert time.process_time() - begun < 5


@pytest.mark.parametrize(
    "text",
    ["docker run -v /x/vllm:/y/vllm serve/image", "say 'vllm serve a is up'",
     "docker build -t x/vllm serve", "pkill -f 'vllm serve a --port 1'"],
)  # fmt: skip
def test_script_that_mentions_but_never_starts_a_server_is_refused(
    tmp_path: Path, text: str
) -> None:
    with pytest.raises(InputError, match="no command of the file starts it"):
        imported(tmp_path, f"{text}\nvllm_serve=1  # vllm serve\necho vllm serve\n")


def test_container_that_runs_another_program_is_no_server(tmp_path: Path) -> None:
    text = (
        "containers:\n- image: vllm/vllm-openai:v0.8.5\n  command: [sh, -c]\n"
        "  args: [vllm serve facebook/opt-125m --max-num-seqs 7 --node-rank 0]\n"
        "- image: vllm/vllm-openai:v0.8.5\n  command: [sh, -c, ray start --address x]\n"
        "- image: vllm/vllm-openai:v0.8.5\n  command: [sh, -c]\n"
        "  args: [vllm serve facebook/opt-125m --max-num-seqs 7 --node-rank 0 --port 9]\n"
    )
    made = imported(tmp_path, text)
    assert made.merged.settings.max_num_seqs == 7
    assert "2 servers have these settings: one is taken" in made.reads[0].description.notes


def test_nested_args_in_a_manifest_belong_to_the_command(tmp_path: Path) -> None:
    text = (
        "spec:\n  command: [python3, -m, sglang.launch_server]\n  image: x\n  configs:\n"
        "  - name: default\n    args: [--model-path, facebook/opt-125m, --context-length, '64']\n"
    )
    assert imported(tmp_path, text).merged.settings.max_model_len == 64


def test_compose_command_in_one_string_is_split_and_dotted_variables_are_set(
    tmp_path: Path,
) -> None:
    compose = (
        "services:\n  a:\n    image: lmsysorg/sglang:v0.5.3\n"
        "    entrypoint: python3 -m sglang.launch_server\n    command: >\n"
        "      --model-path facebook/opt-125m\n      --context-length 64\n"
    )
    assert imported(tmp_path, compose).merged.settings.max_model_len == 64
    pod = (
        "spec:\n  containers:\n  - image: x\n    command: [vllm, serve]\n    env: []\n"
        '    args: [facebook/opt-125m, "--max-model-len=${vLLM.length}"]\n'
    )
    with pytest.raises(InputError, match=r"\$vLLM_length \(max_model_len\)"):
        imported(tmp_path, pod)
    made = imported(tmp_path, pod, variables={"vLLM_length": "64"})
    assert made.merged.settings.max_model_len == 64
