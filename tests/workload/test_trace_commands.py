"""`kvsim traces` and `kvsim convert` as a user meets them, and the catalogue behind them."""

import json
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from kvsim.commands import convert, traces
from kvsim.plumbing.errors import InputError
from kvsim.workload import catalogue
from kvsim.workload.catalogue import TraceEntry

app = typer.Typer()
app.add_typer(traces.app, name="traces")
app.command("convert")(convert.convert)

MOON = (
    '{"timestamp": 0, "input_length": 600, "output_length": 9, "hash_ids": [1, 2]}\n'
    '{"timestamp": 2500, "input_length": 600, "output_length": 9, "hash_ids": [1, 3]}\n'
)


def run(*arguments: object) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture
def moon(tmp_path: Path) -> Path:
    path = tmp_path / "moon.jsonl"
    path.write_text(MOON)
    return path


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[bytes | None], TraceEntry]:
    """A catalogue of one trace, its file in KVSIM_DATA_DIR holding what is asked."""

    def make(content: bytes | None) -> TraceEntry:
        digest = sha256(MOON.encode()).hexdigest()
        entry = TraceEntry(
            name="mine",
            url="https://127.0.0.1:9/folder/mine.jsonl",
            source="here",
            licence="CC0-1.0",
            rows=2,
            sha256=digest,
            format="mooncake",
        )
        monkeypatch.setattr(catalogue, "entries", lambda: {"mine": entry})
        monkeypatch.setenv("KVSIM_DATA_DIR", str(tmp_path / "data"))
        (tmp_path / "data").mkdir()
        if content is not None:
            entry.path.write_bytes(content)
        return entry

    return make


def test_the_catalogue_is_complete() -> None:
    entries = catalogue.entries()
    assert "azure-conv-2023" in entries
    for entry in entries.values():
        assert entry.url.startswith("https://raw.githubusercontent.com/")
        assert len(entry.sha256) == 64
        assert len(entry.url.split("/")[5]) == 40  # a commit, so that the file cannot change
    listed = json.loads(run("traces", "list", "--json"))["traces"]
    assert [entry["name"] for entry in listed] == list(entries)
    assert all({"licence", "source", "sha256", "rows", "url"} <= set(entry) for entry in listed)
    words = run("traces", "list")
    assert all(name in words for name in entries)


def test_existing_trace_file_is_used_without_network(
    mine: Callable[[bytes | None], TraceEntry],
) -> None:
    entry = mine(MOON.encode())
    assert run("traces", "fetch", "mine").strip() == str(entry.path)
    assert json.loads(run("traces", "describe", "mine", "--json"))["rows"] == 2


def test_trace_file_with_a_wrong_checksum_is_refused_and_not_deleted(
    mine: Callable[[bytes | None], TraceEntry],
) -> None:
    entry = mine(b"something else")
    with pytest.raises(InputError, match="its sha256 differs"):
        run("traces", "fetch", "mine")
    assert entry.path.read_bytes() == b"something else"


def test_trace_download_without_network_is_a_one_line_error(
    mine: Callable[[bytes | None], TraceEntry],
) -> None:
    entry = mine(None)
    with pytest.raises(InputError, match=r"cannot download mine.*put the file at") as caught:
        run("traces", "fetch", "mine")
    assert "\n" not in str(caught.value)
    assert list(entry.path.parent.iterdir()) == []


def test_unknown_trace_name_lists_the_catalogue() -> None:
    with pytest.raises(InputError, match=r"azure-conv-2023, azure-code-2023"):
        run("traces", "fetch", "azure")
    with pytest.raises(InputError, match="neither a file nor a trace"):
        run("traces", "describe", "azure.csv")


def test_describe_prints_the_statistics(moon: Path) -> None:
    found = json.loads(run("traces", "describe", moon, "--json", "--lru-blocks", 1))
    assert found["rows"] == 2
    assert found["format"] == "mooncake"
    assert found["arrivals"]["duration_s"] == 2.5
    assert found["prompt_tokens"] == dict.fromkeys(("mean", "p50", "p90", "p99", "max"), 600)
    assert found["reuse"] == {
        "hash_block_tokens": 512,
        "unique_blocks": 3,
        "block_references": 4,
        "ideal_token_hit_ratio": 512 / 1200,
        "ideal_block_hit_ratio": 0.25,
        "lru_token_hit_ratio": {"1": 512 / 1200},
    }
    words = run("traces", "describe", moon)
    assert "2 requests, format mooncake" in words
    assert "0.4267" in words


def test_describe_refuses_cache_sizes_for_a_trace_without_hashes(tmp_path: Path) -> None:
    path = tmp_path / "plain.csv"
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,374,44\n")
    with pytest.raises(InputError, match="no hash ids"):
        CliRunner().invoke(
            app, ["traces", "describe", str(path), "--lru-blocks", "16"], catch_exceptions=False
        )


def test_trace_formats_command_lists_every_format() -> None:
    names = [entry["name"] for entry in json.loads(run("traces", "formats", "--json"))["formats"]]
    assert {"azure", "mooncake", "qwen-bailian", "burstgpt", "vidur", "splitwise"} <= set(names)
    assert all(name in run("traces", "formats") for name in names)


def test_convert_writes_another_format_and_lists_lost_columns(moon: Path, tmp_path: Path) -> None:
    result = CliRunner().invoke(
        app, ["convert", str(moon), str(tmp_path / "x.csv"), "--to", "vidur", "--rate-scale", "2"]
    )
    assert result.exit_code == 0
    assert result.stdout == ""
    assert "lost: hash ids" in result.stderr
    assert "rate times 2: 2 of 2" in result.stderr
    assert (tmp_path / "x.csv").read_text() == (
        "arrived_at,num_prefill_tokens,num_decode_tokens\n0,600,9\n1.25,600,9\n"
    )


def test_convert_refuses_rows_a_format_cannot_hold(tmp_path: Path) -> None:
    lengths = tmp_path / "lengths.csv"
    lengths.write_text("num_prefill_tokens,num_decode_tokens\n1,2\n")
    destination = tmp_path / "out"
    destination.write_text("precious")
    with pytest.raises(InputError, match="needs arrival times"):
        run("convert", lengths, destination, "--to", "azure")
    follows = tmp_path / "follows.jsonl"
    follows.write_text(
        '{"session_id": "a", "timestamp": 0, "input_length": 6, "output_length": 2}\n'
        '{"session_id": "a", "delay": 5, "input_length": 7, "output_length": 1}\n'
    )
    with pytest.raises(InputError, match="cannot say that a row follows"):
        run("convert", follows, destination, "--to", "mooncake")
    with pytest.raises(InputError, match="no hash ids"):
        run("convert", follows, destination, "--to", "azure", "--to-hash-block-tokens", "16")
    assert destination.read_text() == "precious"
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "follows.jsonl", "lengths.csv", "out",
    ]  # fmt: skip


def test_convert_to_an_unwritable_path_is_refused(moon: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not a folder"):
        run("convert", moon, moon / "x.csv", "--to", "vidur")
    with pytest.raises(InputError, match="a folder, where a file is meant"):
        run("convert", moon, tmp_path, "--to", "vidur")


def test_convert_to_smaller_blocks_preserves_prefix_sharing(moon: Path, tmp_path: Path) -> None:
    small = tmp_path / "small.jsonl"
    run("convert", moon, small, "--to", "timed-trace")
    found = json.loads(run("traces", "describe", small, "--json"))
    assert found["format"] == "timed-trace"
    assert found["reuse"]["hash_block_tokens"] == 16
    assert found["reuse"]["ideal_token_hit_ratio"] == 512 / 1200
