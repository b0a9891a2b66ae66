"""Several results are a scenario each; several scrapes of one server are one server."""

import json
from pathlib import Path
from typing import Any

import pytest
from support.import_samples import bench_result, vllm_command

from kvsim.interchange.imported import Imported, ImportOptions, import_results, import_sources
from kvsim.plumbing.errors import InputError

NAMED = {"gpu": "h100"}


def results(folder: Path, *sources: Path) -> list[tuple[Path, Imported]]:
    named = [str(vllm_command(folder)), *map(str, sources)]
    return import_results(named, ImportOptions(NAMED), folder / "made.toml")


def bench(folder: Path, name: str, **changed: Any) -> Path:
    plain = {k: v for k, v in bench_result().items() if not isinstance(v, list)}
    path = folder / name
    path.write_text(json.dumps(plain | changed))
    return path


def test_each_bench_result_in_a_folder_becomes_a_scenario(tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    folder.mkdir()
    for users in (4, 8, 16):
        bench(folder, f"conc {users}.json", max_concurrency=users)
    made = results(tmp_path, folder)
    assert [path.relative_to(tmp_path).as_posix() for path, _ in made] == [
        *("made/conc-16.toml", "made/conc-4.toml", "made/conc-8.toml"),
    ]
    users_of = [each.scenario["workload"]["arrivals"]["num_users"] for _, each in made]
    assert users_of == [16, 4, 8]
    assert all(each.merged.settings.max_num_seqs == 64 for _, each in made)
    with pytest.raises(InputError, match="several results"):
        import_sources([str(folder)], NAMED | {"model": "opt-125m"}, tmp_path / "made.toml")


def test_each_inference_perf_stage_becomes_a_scenario_and_the_summary_none(tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    folder.mkdir()
    for name, rate in (("stage_0", 1.0), ("stage_1", 2.0), ("summary", 1.5)):
        report = {
            "load_summary": {"count": 10, "requested_rate": rate},
            "successes": {
                "count": 10,
                "latency": {"time_to_first_token": {"mean": 0.1}},
                "prompt_len": {"mean": 100},
                "output_len": {"mean": 10},
            },
        }
        (folder / f"{name}_lifecycle_metrics.json").write_text(json.dumps(report))
        of_server = report | {
            "load_summary": {},
            "successes": report["successes"] | {"kv_cache_usage_percentage": {"mean": 50 * rate}},
        }
        (folder / f"{name}_prometheus_metrics.json").write_text(json.dumps(of_server))
    made = results(tmp_path, folder)
    assert [
        [read.description.measured.get("kv_usage") for read in each.reads] for _, each in made
    ] == [[None, None, 0.5], [None, None, 1.0]]  # the command, the client, the server
    rates = [each.scenario["workload"]["arrivals"]["rate_per_s"] for _, each in made]
    assert rates == [1.0, 2.0]


def test_each_distinct_server_of_a_manifest_becomes_a_scenario(tmp_path: Path) -> None:
    path = tmp_path / "pods.yaml"
    path.write_text(
        "".join(
            f"---\nspec:\n  containers:\n  - image: vllm/vllm-openai:v0.19.1\n"
            f"    args: [--model, facebook/opt-125m, --max-num-seqs, '{seqs}']\n"
            for seqs in (7, 9, 7)
        )
    )
    made = import_results([str(path)], ImportOptions(NAMED), tmp_path / "made.toml")
    assert [out.name for out, _ in made] == ["pods.yaml-server-1.toml", "pods.yaml-server-2.toml"]
    found = [each.merged.settings for _, each in made]
    assert [each.max_num_seqs for each in found] == [7, 9]
    assert {each.engine_version for each in found} == {"0.19.1"}


def scrape(folder: Path, name: str, started: float, finished: int, seconds: float) -> Path:
    path = folder / name
    path.write_text(
        f"process_start_time_seconds {started}\n"
        f"vllm:e2e_request_latency_seconds_sum {seconds}\n"
        f"vllm:e2e_request_latency_seconds_count {finished}\n"
        f"vllm:generation_tokens_total {10 * finished}\n"
        f"vllm:spec_decode_num_drafts_total {finished}\n"
        f"vllm:spec_decode_num_draft_tokens_total {3 * finished}\n"
        f"vllm:spec_decode_num_accepted_tokens_total {2 * finished}\n"
        'vllm:cache_config_info{num_gpu_blocks="4000",block_size="16"} 1.0\n'
    )
    return path


def test_scrapes_with_one_start_time_are_one_server_with_counter_differences(
    tmp_path: Path,
) -> None:
    before = scrape(tmp_path, "a.txt", 1.7e9, 10, 10.0)
    after = scrape(tmp_path, "b.txt", 1.7e9, 30, 50.0)
    ((_, made),) = results(tmp_path, after, before)
    assert "fleet" not in made.scenario
    assert made.recording is not None
    assert made.recording.figures is not None
    assert made.recording.figures["e2e_s"]["mean"] == 2.0  # 40 s of 20 requests
    assert any("scrapes of one server" in note for note in made.notes)
    other = scrape(tmp_path, "c.txt", 1.8e9, 30, 50.0)
    ((_, fleet),) = results(tmp_path, before, other)
    assert fleet.scenario["fleet"]["replicas"] == 2


def test_draft_counters_give_the_acceptance_rate_or_a_note(tmp_path: Path) -> None:
    counted = scrape(tmp_path, "a.txt", 1.7e9, 10, 10.0)
    ((_, alone),) = results(tmp_path, counted)
    notes = " ".join(note for read in alone.reads for note in read.description.notes)
    assert "10 drafts of 3 tokens, of which 67% were accepted" in notes
    drafting = (
        "vllm serve facebook/opt-125m --speculative-config "
        '\'{"method": "ngram", "num_speculative_tokens": 3}\''
    )
    made = import_sources([drafting, str(counted)], NAMED, tmp_path / "made.toml")
    assert made.scenario["speculative_config"]["acceptance_rate"] == 0.6667


def side(role: str, engine: str, seqs: int, *, named: bool) -> str:
    """A document of Kubernetes with one side of a pair. named: by its labels, not by a flag."""
    image, words = {
        "vllm": ("vllm/vllm-openai:v0.19.1", "vllm serve facebook/opt-125m --max-num-seqs"),
        "sglang": (
            "lmsysorg/sglang:v0.5.3",
            "python3 -m sglang.launch_server --model-path facebook/opt-125m --max-running-requests",
        ),
    }[engine]
    kv_role = "kv_both" if named else {"prefill": "kv_producer", "decode": "kv_consumer"}[role]
    connector = json.dumps({"kv_connector": "NixlConnector", "kv_role": kv_role})
    flag = {
        "vllm": f"--kv-transfer-config '{connector}'",
        "sglang": f"--disaggregation-mode {role}",
    }[engine]
    name, replicas = role if named else "x", 2 if role == "prefill" else 3
    return (
        f"apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: {name}-server\n"
        f"spec:\n  replicas: {replicas}\n  template:\n    spec:\n"
        f"      containers:\n      - image: {image}\n        command: [bash, -c]\n"
        f"        args:\n        - >-\n          {words} {seqs} {flag}\n---\n"
    )


@pytest.mark.parametrize(("engine", "named"), [("vllm", True), ("vllm", False), ("sglang", False)])
def test_prefill_and_decode_servers_of_a_manifest_become_one_scenario(
    tmp_path: Path, engine: str, *, named: bool
) -> None:
    path = tmp_path / "pair.yaml"
    sides = [side("prefill", engine, 8, named=named), side("decode", engine, 64, named=named)]
    path.write_text("".join(sides))
    ((_, made),) = import_results([str(path)], ImportOptions(NAMED), tmp_path / "made.toml")
    pair = made.scenario["disaggregation"]
    assert (pair["prefill"]["replicas"], pair["decode"]["replicas"]) == (2, 3)
    limit = "max_running_requests" if engine == "sglang" else "max_num_seqs"
    assert pair["prefill"]["scheduler"][limit] == 8
    assert made.scenario["scheduler"][limit] == 64
    assert "fleet" not in made.scenario
    assert any("link_gb_per_s" in each for each in made.assumed)
    assert "not simulated" not in " ".join(made.notes)
    path.write_text(sides[0])
    ((_, alone),) = import_results([str(path)], ImportOptions(NAMED), tmp_path / "made.toml")
    assert "disaggregation" not in alone.scenario
    if not named:
        assert any("prefill side of a pair" in each for each in alone.notes)


def test_headless_node_is_not_imported_as_a_server(tmp_path: Path) -> None:
    path = tmp_path / "nodes.yaml"
    path.write_text(
        "deployment:\n"
        "- server_cmd: >\n    vllm serve facebook/opt-125m\n    --max-num-seqs 8\n"
        "- server_cmd: >\n    vllm serve facebook/opt-125m --headless\n    --max-num-seqs 9\n"
    )
    ((_, made),) = import_results([str(path)], ImportOptions(NAMED), tmp_path / "made.toml")
    assert made.scenario["scheduler"]["max_num_seqs"] == 8
    assert "--headless" in " ".join(made.reads[0].description.notes)
