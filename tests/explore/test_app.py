"""The explorer's server: only this machine, no network, pages of runs, the command."""

import json
import socket
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from kvsim.cli import app as command
from kvsim.explore.app import make_app
from kvsim.explore.hosts import is_loopback
from kvsim.explore.page_context import PageContext
from kvsim.explore.server import serve
from kvsim.explore.starting_points import find_starting_points
from kvsim.explore.state import started
from kvsim.explore.task import RunTask
from kvsim.explore.theme import themed
from kvsim.explore.worker_pool import Job, WorkerPool
from kvsim.plumbing.errors import InputError
from kvsim.report.page import make_page
from kvsim.scenario import Scenario
from kvsim.simulation import Simulation

STARTING_POINTS = find_starting_points(None)
TOKEN = "a-token"
TABLE = started(STARTING_POINTS["tour:blocks"], ["workload.num_requests=20"]).table


class Answered(WorkerPool):
    """A job that has finished."""

    def __init__(self) -> None:
        super().__init__(0)
        task = RunTask(TABLE, Path(), TABLE)
        job = Job("known", task, "done", answer=task.do(lambda *_: None))
        self._jobs["known"] = job


@pytest.fixture(scope="module")
def client() -> Any:
    context = PageContext(STARTING_POINTS, Answered(), "chat")
    made = make_app(context, "127.0.0.1", TOKEN).test_client()
    assert made.get(f"/?token={TOKEN}").status_code == 302
    return made


def test_explorer_page_loads_nothing_from_other_hosts(client: Any) -> None:
    page = client.get("/")
    assert page.status_code == 200
    policy = page.headers["Content-Security-Policy"]
    assert "default-src 'self'" in policy
    assert "http" not in policy
    sources = [part.split('"')[0] for part in page.text.split('src="')[1:]]
    assert sources
    assert all(source.startswith("/") for source in sources)


@pytest.mark.parametrize(
    ("host", "status"),
    [("localhost:8050", 200), ("127.0.0.1", 302), ("[::1]:80", 302), ("evil.example:8050", 403)],
)
def test_requests_with_another_host_header_are_refused(client: Any, host: str, status: int) -> None:
    shown = client.get(f"/?token={TOKEN}", headers={"Host": host})
    assert shown.status_code == status


@pytest.mark.parametrize(
    ("host", "alone"),
    [("localhost", True), ("127.0.0.1", True), ("::1", True), ("0.0.0.0", False), ("box", False)],
)
def test_only_loopback_hosts_count_as_this_machine(host: str, alone: bool) -> None:
    assert is_loopback(host) is alone


def test_explorer_serves_the_pages_of_a_run(client: Any) -> None:
    result = Simulation(Scenario.from_table(TABLE)).result(addresses=True)
    report = client.get("/runs/known/report.html").text
    assert report == make_page(result)
    map_alone = client.get("/runs/known/map.html?theme=dark").text
    assert 'id="map"' in map_alone
    assert 'id="plotly"' not in map_alone
    for wrong in ("/runs/other/map.html", "/runs/known/scenario.html"):
        assert client.get(wrong).status_code == 404


def test_dark_theme_recolours_figures() -> None:
    figure = {"data": [{"name": "#1f2328", "line": {"color": "#1f2328"}}], "layout": {}}
    dark = themed(json.dumps(figure), dark=True)
    assert dark["data"][0] == {"name": "#1f2328", "line": {"color": "#e6edf3"}}
    assert themed(json.dumps(figure), dark=False) == figure


def test_explore_without_dash_names_the_package_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    import kvsim.plumbing.extras as module

    monkeypatch.setattr(module, "find_spec", lambda name: None)
    done = CliRunner().invoke(command, ["explore"])
    assert isinstance(done.exception, InputError)
    assert "pip install 'kvsim[explore]'" in str(done.exception)


def test_explorer_errors_name_a_taken_port_and_an_invalid_host() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(InputError, match="cannot listen there"):
            serve(None, "127.0.0.1", taken.getsockname()[1], lambda _: None)
    with pytest.raises(InputError, match="cannot listen there"):
        serve(None, "no such host", 0, lambda _: None)


def test_command_line_does_not_import_dash() -> None:
    from subprocess import run

    code = "import sys, kvsim.cli; sys.exit('dash' in sys.modules)"
    assert run([sys.executable, "-c", code], check=False).returncode == 0


def test_explorer_refuses_requests_without_the_printed_token() -> None:
    """Page, callback and file need the token; once it was given, a same-site cookie holds it."""
    for host in ("127.0.0.1", "0.0.0.0"):
        context = PageContext(STARTING_POINTS, Answered(), "chat")
        stranger = make_app(context, host, TOKEN).test_client()
        for path in ("/", "/?token=wrong", "/runs/known/report.html", "/_dash-layout", "/?token"):
            refused = stranger.get(path)
            assert refused.status_code == 403
            assert "printed" in refused.text
        posted = stranger.post(f"/_dash-update-component?token={TOKEN}", json={})
        assert posted.status_code == 403
        known = stranger.get(f"/?from=chat&token={TOKEN}&set=seed%3D1")
        assert (known.status_code, known.headers["Location"]) == (302, "/?from=chat&set=seed%3D1")
        cookie = known.headers["Set-Cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=Strict" in cookie
        assert stranger.get("/").status_code == 200


def test_malformed_requests_are_refused_without_a_traceback(
    client: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """Dash raises KeyError and the like for these, and would list its files."""
    update = "/_dash-update-component"
    for answer in (
        client.post(update, json={}),
        client.post(update, json=[1]),
        client.post(update, data="{", content_type="application/json"),
        client.post(update, json={"output": "no.such", "inputs": [], "changedPropIds": []}),
        client.get("/_dash-component-suites/dash/../../"),
        client.get("/_dash-component-suites/dash/no.js"),
    ):
        assert 400 <= answer.status_code < 500, answer.text
        assert len(answer.text) < 300
    assert "Traceback" not in capsys.readouterr().err


def test_internal_errors_are_not_reported_as_malformed_requests(
    client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kvsim.explore.app.plotly_script", lambda: 1 // 0)
    monkeypatch.setitem(client.application.config, "PROPAGATE_EXCEPTIONS", True)
    with pytest.raises(ZeroDivisionError):
        client.get("/plotly.js")


def test_only_the_printed_address_opens_the_explorer() -> None:
    import threading
    from urllib.error import HTTPError
    from urllib.request import HTTPCookieProcessor, build_opener, urlopen

    heard: list[str] = []
    ready, stop = threading.Event(), threading.Event()

    def hear(address: str) -> None:
        heard.append(address)
        ready.set()

    thread = threading.Thread(target=serve, args=(None, "127.0.0.1", 0, hear, stop), daemon=True)
    thread.start()
    assert ready.wait(60)
    try:
        plain, _, token = heard[0].partition("?token=")
        assert len(token) >= 32
        with pytest.raises(HTTPError, match="403"):
            urlopen(plain)
        assert b"kvsim explore" in build_opener(HTTPCookieProcessor()).open(heard[0]).read()
    finally:
        stop.set()
        thread.join(30)


def test_explorer_server_starts_without_worker_imports() -> None:
    from subprocess import run

    code = (
        "import sys, kvsim.explore.server; first = 'dash' in sys.modules; import kvsim.explore.app;"
        " sys.exit(first or 'pandas' in sys.modules)"
    )
    assert run([sys.executable, "-c", code], check=False).returncode == 0
