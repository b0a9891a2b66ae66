"""Records of each engine, and the message if the address has no such server."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from support.live_server import MODEL, StandIn, Truth, timeless
from typer.testing import CliRunner

from kvsim.cli import app, main
from kvsim.commands.record import workload_of_flags
from kvsim.interchange.imported import Imported, import_sources
from kvsim.plumbing import extras
from kvsim.plumbing.errors import InputError
from kvsim.record.address import base_of
from kvsim.record.load import check_sendable
from kvsim.record.prompts import PromptContent
from kvsim.record.recording import RecordedServer, RecordOptions, record
from kvsim.request import Request, Stream
from kvsim.workload import WORKLOADS

FAST = Truth(step_s=0.002, prompt_s=1e-6, front_s=0.001)
FEW = workload_of_flags(users=3, requests=9, prompt_tokens="20-60", output_tokens="4-9")


def requests(longest: int | None) -> Stream:
    return WORKLOADS.parse(FEW, "").stream(0, base=Path(), max_model_len=longest)


def recorded(stand_in: StandIn, run: Path, **more: Any) -> RecordedServer:
    async def whole() -> RecordedServer:
        async with stand_in.serving() as url:
            options = RecordOptions(url, run, **{"requests": requests, "every_s": 0.01, **more})
            return await record(options, lambda done, total: None)

    found: RecordedServer = timeless(whole)
    return found


def imported(run: Path, **named: Any) -> Imported:
    return import_sources([str(run)], named, run.parent / "mine.toml", fit=False)


@contextmanager
def live(stand_in: StandIn) -> Iterator[str]:
    """The server in a thread, in real time."""
    running: list[tuple[str, asyncio.AbstractEventLoop, asyncio.Event]] = []
    ready = threading.Event()

    async def serve() -> None:
        async with stand_in.serving() as url:
            running.append((url, asyncio.get_running_loop(), asyncio.Event()))
            ready.set()
            await running[0][2].wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))  # which ends all its tasks
    thread.start()
    assert ready.wait(10)
    url, loop, over = running[0]
    try:
        yield url
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join()


def refused(*words: object) -> str:
    """The one line of a command that ends with exit code 2."""
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert isinstance(result.exception, InputError), result.output
    line = str(result.exception)
    assert "\n" not in line
    return line


def test_recorded_vllm_run_is_imported_and_validated(tmp_path: Path) -> None:
    run = tmp_path / "run"
    found = recorded(StandIn(FAST), run, device="h100")
    assert (found.engine, found.model, found.sent, found.answered) == ("vllm", "served", 9, 9)
    assert len(list((run / "scrapes").iterdir())) == found.scrapes > 3
    bench = json.loads((run / "bench.json").read_text())
    assert (bench["completed"], bench["failed"]) == (9, 0)
    asked = requests(None).requests
    assert bench["total_input_tokens"] == sum(each.prompt_tokens for each in asked)
    assert bench["total_output_tokens"] == sum(each.output_tokens for each in asked)
    assert bench["median_tpot_ms"] == pytest.approx(2.3, abs=0.2)
    made = imported(run)
    assert made.scenario["model"]["name"] == MODEL
    assert made.scenario["memory"]["num_gpu_blocks"] == 8_000
    assert made.recording is not None
    assert len(made.recording.served) == 9
    assert len(made.recording.ticks) > 3  # on the clock of the requests
    answer = CliRunner().invoke(app, ["validate", "run", str(run), "--step-time", "roofline",
                                      "--json"])  # fmt: skip
    assert answer.exit_code == 0, answer.output


def test_recorded_sglang_gives_arguments_and_no_secret_is_written(tmp_path: Path) -> None:
    run = tmp_path / "run"
    found = recorded(StandIn(FAST, "sglang"), run)
    assert found.engine == "sglang"
    settings = imported(run, gpu="h100").merged.settings
    assert (settings.engine, settings.engine_version) == ("sglang", "0.5.6")
    assert (settings.tensor_parallel_size, settings.kv_cache_tokens) == (2, 128_000)
    assert settings.enable_prefix_caching is False
    texts = [path.read_text() for path in run.iterdir() if path.is_file()]
    assert not any("secret" in text for text in texts)
    busiest = max(tick.running or 0 for tick in imported(run, gpu="h100").recording.ticks)  # type: ignore[union-attr]
    assert busiest == 3  # both ranks report the same


def test_recorded_llama_server_gives_its_slots(tmp_path: Path) -> None:
    run = tmp_path / "run"
    found = recorded(StandIn(FAST, "llama.cpp"), run)
    assert found.engine == "llama.cpp"
    props = json.loads((run / "props.json").read_text())
    assert props["total_slots"] == 4
    assert "chat_template" not in props
    assert imported(run, gpu="h100", model="qwen3-32b").merged.settings.n_parallel == 4


def test_watched_server_gives_means_of_other_clients_load(tmp_path: Path) -> None:
    run = tmp_path / "run"
    stand_in = StandIn(FAST)

    async def whole() -> RecordedServer:
        async with stand_in.serving() as url, httpx2.AsyncClient() as client:
            body = {"prompt": [1] * 30, "max_tokens": 20}
            asking = [
                asyncio.ensure_future(client.post(f"{url}/v1/completions", json=body))
                for _ in range(4)
            ]
            options = RecordOptions(url, run, seconds=2.0, every_s=0.1)
            found = await record(options, lambda done, total: None)
            await asyncio.gather(*asking)
            return found

    found = timeless(whole)
    assert (found.sent, found.stopped) == (0, False)
    bench = json.loads((run / "bench.json").read_text())
    assert (bench["completed"], bench["total_output_tokens"]) == (4, 4 * 19)
    assert bench["mean_ttft_ms"] == pytest.approx(4, abs=3)
    load = imported(run, gpu="h100").merged.load
    assert load is not None
    assert load.num_requests == 4


def test_server_that_refuses_token_ids_gets_text_prompts(tmp_path: Path) -> None:
    stand_in = StandIn(FAST, ids=False)
    found = recorded(stand_in, tmp_path / "run")
    assert any("prompts are text (64 words are 65 tokens here)" in note for note in found.notes)
    bench = json.loads((tmp_path / "run" / "bench.json").read_text())
    asked = [each.prompt_tokens for each in requests(None).requests]
    assert sorted(bench["input_lens"]) == sorted(asked)


def test_prompts_with_equal_content_share_token_ids() -> None:
    one, two = (Request(name, 0, 40, 1, prompt_runs=((0, 32), (own, 8)))
                for name, own in (("a", 100), ("b", 200)))  # fmt: skip
    private = Request("c", 0, 40, 1)
    content, other = PromptContent(1), PromptContent(2)
    first, second = content.ids(one), content.ids(two)
    assert first[:32] == second[:32]
    assert first[32:] != second[32:]
    assert first != other.ids(one)  # of another recording
    assert content.ids(private) != content.ids(private)


def test_requests_too_long_or_with_adapters_are_refused() -> None:
    with pytest.raises(InputError, match=r"request a: longer than the server takes; got 40 \+ 9"):
        check_sendable(Stream((Request("a", 0, 40, 9),)), 48)
    with pytest.raises(InputError, match="adapters are not sent"):
        check_sendable(Stream((Request("a", 0, 40, 9, adapter=1),)), None)


@pytest.mark.parametrize(
    ("stand_in", "words", "line"),
    [
        (StandIn(FAST, refuse={"/metrics": 404}), (), "no metrics here (HTTP 404); start SGLang"),
        (StandIn(FAST, key="k"), (), "refuses without the right API key (HTTP 401)"),
        (StandIn(FAST, refuse={"/v1/models": 404}), (), "the server lists no model (HTTP 404)"),
        (StandIn(FAST), ("--model", "x"), "no such model on this server; got x; limit served"),
        (StandIn(FAST, refuse={"/v1/completions": 503}), (), "does not answer a short request"),
        (StandIn(FAST), ("--metrics-url", "{url}/version"), "metrics of no engine"),
        (StandIn(FAST), ("--prompt-tokens", "9000"), "longer than the server takes"),
    ],
)
def test_server_that_cannot_be_recorded_is_an_error_and_writes_nothing(
    stand_in: StandIn, words: tuple[str, ...], line: str, tmp_path: Path
) -> None:
    with live(stand_in) as url:
        more = [word.format(url=url) for word in words]
        said = refused("record", url, "--users", 1, *more, "--out", tmp_path / "run")
    assert line in said
    assert not (tmp_path / "run").exists()


def test_contradicting_record_options_are_refused(tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert "no server answers" in refused("record", "localhost:1", "--users", 1, "--out", run)
    assert "no load is named" in refused("record", "localhost:1", "--out", run)
    assert "--rate and --users: two kinds" in refused(
        "record", "localhost:1", "--users", 1, "--rate", 1, "--out", run
    )
    assert "--rate: nothing is sent" in refused(
        "record", "localhost:1", "--watch", "--rate", 1, "--out", run
    )
    assert "--api-key-env: an environment variable that is not set" in refused(
        "record", "localhost:1", "--watch", "--api-key-env", "NO_SUCH_KEY", "--out", run
    )
    run.mkdir()
    (run / "other").touch()
    assert "the folder is not empty" in refused("record", "localhost:1", "--watch", "--out", run)


@pytest.mark.parametrize(
    ("given", "base"),
    [
        ("localhost:8000/", "http://localhost:8000"),
        ("https://host/prefix/v1/completions", "https://host/prefix"),
        ("http://host:9/metrics", "http://host:9"),
    ],
)
def test_server_addresses_in_any_form_give_one_base_url(given: str, base: str) -> None:
    assert base_of(given) == base


def test_invalid_server_address_is_refused() -> None:
    with pytest.raises(InputError, match="not an address of a server"):
        base_of("ftp://host")


def test_record_without_httpx2_gives_the_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda name: None)
    line = refused("record", "localhost:1", "--watch", "--out", "x")
    assert "httpx2 is not installed; pip install 'kvsim[record]'" in line
    assert main  # the command line prints it and exits with 2


def test_an_interrupt_keeps_the_answered_requests(tmp_path: Path) -> None:
    run = tmp_path / "run"
    words = (
        *("record", "--rate", "20", "--output-tokens", "5", "--every", "0.1"),
        *("--requests", "5000", "--out", str(run)),
    )
    with live(StandIn(FAST)) as url:
        command = [sys.executable, "-m", "kvsim", *words, url]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ)
        late_s = time.monotonic() + 60
        while len(list(run.glob("scrapes/*.prom.gz"))) < 8 and time.monotonic() < late_s:
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted: what had come is kept" in said
    assert "were not sent" in said
    bench = json.loads((run / "bench.json").read_text())
    assert 0 < bench["completed"] < 5000
    assert (run / "timeseries.csv").read_text().count("\n") > 3


def test_commands_on_the_record_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every line of its bash blocks, with fewer requests and seconds."""
    monkeypatch.chdir(tmp_path)
    page = (Path(__file__).parents[2] / "docs" / "record.md").read_text()
    lines = "".join(re.findall(r"```bash\n(.*?)```", page, flags=re.DOTALL)).splitlines()
    assert len(lines) == 5
    with live(StandIn(FAST)) as url:
        changed = {
            "http://localhost:8000": url,
            "--rate 2 --requests 200": "--rate 30 --requests 9",
        }
        changed |= {"num_requests=40": "num_requests=3", "--seconds 60": "--seconds 0.5"}
        changed |= {"--watch": "--watch --every 0.1", "--rate 30": "--output-tokens 5 --rate 30"}
        for line in lines:
            for old, new in changed.items():
                line = line.replace(old, new)
            done = CliRunner().invoke(app, line.split()[1:])
            assert done.exit_code == 0, (line, done.output, done.exception)
