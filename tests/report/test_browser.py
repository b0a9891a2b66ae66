"""The report in a real browser: drawn, searched, marked, zoomed, without network requests."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.browser import BROWSER, DRIVER, MISSING, faults, forget, start, wait

from kvsim.report.figures import FIGURES
from kvsim.report.page import make_page
from kvsim.request import Request
from kvsim.results.result import Result
from kvsim.scenario import Scenario
from kvsim.simulation import Simulation

pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
pytestmark = pytest.mark.skipif(not (BROWSER and DRIVER), reason=MISSING)
IDS = "return [...document.querySelectorAll('#requests tbody tr')].map(r => r.cells[0].textContent)"
PIXELS = (
    "const c = document.querySelector('#map canvas'), pen = c.getContext('2d');"
    "const p = new Uint32Array(pen.getImageData(0, 0, c.width, c.height).data.buffer);"
)
EVIL = (
    "<script>document.title='taken'</script>",
    "<img src=x onerror=\"document.title='taken'\">",
    "</script><b>bold</b>",
    "\u05e9\u05dc\u05d5\u05dd \u202e gnp.exe",
    "long" * 1200,
    "%{x} &amp; ${y} `z` \\u003c {{ 7 * 7 }}",
)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    driver = start(tmp_path_factory.mktemp("profile"))
    yield driver
    driver.quit()


def open_page(browser: Any, result: Result, folder: Path) -> None:
    path = folder / "report.html"
    path.write_text(make_page(result), encoding="utf-8")
    forget(browser)
    browser.get(path.as_uri())
    wait(browser, "return document.body.dataset.drawn")
    wait(browser, "return document.querySelector('#requests').dataset.ready")
    if any(run.table("addresses") is not None for run in result.runs):
        wait(browser, "return document.querySelector('#map').dataset.ready")


@pytest.fixture(scope="module")
def opened(browser: Any, traced: Result, tmp_path_factory: pytest.TempPathFactory) -> Any:
    open_page(browser, traced, tmp_path_factory.mktemp("page"))
    return browser


GIB = 2**30


@pytest.mark.parametrize(
    ("low", "high", "axis", "texts"),
    [
        (0, 2.44 * GIB, "SIZES", ["0 GiB", "0.5 GiB", "1 GiB", "1.5 GiB", "2 GiB"]),
        (0, 1000, "SIZES", ["0 B", "200 B", "400 B", "600 B", "800 B", "1,000 B"]),
        (
            2 * GIB,
            2.002 * GIB,
            "SIZES",
            ["2,048 MiB", "2,048.5 MiB", "2,049 MiB", "2,049.5 MiB", "2,050 MiB"],
        ),
        (0, 130, "TIMES", ["0 s", "50 s", "100 s"]),
        (0, 300, "TIMES", ["0 min", "1 min", "2 min", "3 min", "4 min", "5 min"]),
        (0, 0.0676, "TIMES", ["0 ms", "20 ms", "40 ms", "60 ms"]),
        (
            3600,
            3601,
            "TIMES",
            ["3,600 s", "3,600.2 s", "3,600.4 s", "3,600.6 s", "3,600.8 s", "3,601 s"],
        ),
    ],
)
def test_map_ticks_are_round_numbers_of_one_unit(
    opened: Any, low: float, high: float, axis: str, texts: list[str]
) -> None:
    """An axis once had ticks at 500 MiB, 1,000 MiB, 1.46 GiB, and another at 0 s, 60 s, 2 min."""
    script = f"return kvsim.ticks({low}, {high}, 5.5, kvsim.{axis})"
    ticks = opened.execute_script(script)
    assert [text for _, text in ticks] == texts
    assert all(low <= at <= high * (1 + 1e-9) for at, _ in ticks)


def test_report_page_draws_every_figure_without_network_requests(
    opened: Any, traced: Result
) -> None:
    plots = opened.execute_script(
        "return [...document.querySelectorAll('[data-figure]')].map("
        "p => p.querySelectorAll('.trace, .points path, .scatterlayer .js-line').length)"
    )
    assert len(plots) == sum(FIGURES.get(name)().draw(traced) is not None for name in FIGURES)
    # Nobody kept a tree, and there are no replicas, tiers or links.
    assert len(plots) == len(list(FIGURES)) - 4
    assert all(plots)
    inks = opened.execute_script(f"{PIXELS} return new Set(p).size")
    assert inks > 8
    assert faults(opened) == []


def test_browser_table_searches_and_sorts(opened: Any, traced: Result) -> None:
    run = traced.runs[0]
    box = opened.find_element("css selector", "#requests input")
    box.send_keys("r15")
    expected = [name for name in run.requests["id"] if "r15" in name]
    assert opened.execute_script(IDS) == expected
    box.clear()
    box.send_keys(" ")
    opened.find_element("css selector", "button[data-column=e2e_s]").click()
    took = (run.requests["finish_ps"] - run.requests["arrival_ps"]).to_numpy()
    slowest = run.requests["id"].iloc[np.argsort(-took, kind="stable")[:25]]
    assert opened.execute_script(IDS) == list(slowest)
    box.clear()
    opened.find_element("css selector", "button[data-column=arrival]").click()


def test_clicking_a_request_marks_it_in_every_figure(opened: Any, traced: Result) -> None:
    requests = traced.runs[0].requests.iloc[:25]
    waited = (requests["scheduled_ps"] > requests["arrival_ps"]) & (requests["output_tokens"] > 1)
    place = int(np.flatnonzero(waited)[-1])
    opened.execute_script(f"document.querySelector('tr[data-place=\"{place}\"]').click()")
    assert wait(opened, "return kvsim.marked") == {"run": 0, "place": place}
    shapes = (
        "return [...document.querySelectorAll('[data-figure]')]"
        ".filter(p => (p.layout.shapes || []).length).map(p => p.dataset.figure.slice(7))"
    )
    wait(opened, shapes.replace(".map(p => p.dataset.figure.slice(7))", ".length >= 8"))
    assert {"ledger", "concurrency", "events", "hits", "queue", "ttft", "tpot", "e2e"} <= set(
        opened.execute_script(shapes)
    )
    wait_s = opened.execute_script(
        "return document.querySelector('[data-figure=figure-e2e]').layout.shapes[0].x0"
    )
    row = requests.iloc[place]
    assert wait_s == pytest.approx((row.finish_ps - row.arrival_ps) / 1e12, rel=1e-4)
    wait(opened, f"{PIXELS} return p.includes(0xff003bff)")
    opened.find_element("css selector", "#requests .clear").click()
    assert opened.execute_script("return kvsim.marked") is None
    assert faults(opened) == []


@pytest.mark.parametrize("index", [0, 1, 2])
def test_address_map_tooltip_equals_the_table(opened: Any, traced: Result, index: int) -> None:
    opened.execute_script(
        "const s = document.querySelector('#map select'); s.value = arguments[0];"
        "s.dispatchEvent(new Event('change'))", str(index),
    )  # fmt: skip
    wait(opened, f"return kvsim.map.current().index === {index}")
    run = traced.runs[index]
    stays = run.table("addresses")
    drawn = opened.execute_script(
        "const m = kvsim.map.current(); return [m.unit_bytes, m.span_s, m.ticks]"
    )
    unit, span_s, ticks = drawn
    rng = np.random.default_rng(index)
    for at in rng.integers(len(stays), size=40):
        stay = stays.iloc[at]
        if (stay.end_ps - stay.start_ps) / 1e12 < 4 * span_s / ticks:
            continue
        tick = (stay.start_ps + stay.end_ps) / 2e12 / span_s * ticks
        place = stay.address / unit + 0.5
        told = opened.execute_script(
            "return kvsim.map.told(kvsim.map.under({tick: arguments[0], unit: arguments[1]}))",
            tick, place,
        )  # fmt: skip
        assert told.startswith(f"{stay.request}: ")
        assert ("cached" in told) == (stay.kind == "cached")


def test_keyboard_zooms_the_address_map_and_resets_it(opened: Any) -> None:
    from selenium.webdriver.common.keys import Keys

    canvas = opened.find_element("css selector", "#map canvas")
    whole = opened.execute_script("return kvsim.map.whole()")
    canvas.send_keys("+", "+", Keys.ARROW_RIGHT)
    view = opened.execute_script("return kvsim.map.view()")
    assert view["t1"] - view["t0"] == pytest.approx(whole["t1"] / 4)
    assert view["t0"] > 0.375 * whole["t1"]
    for _ in range(40):
        canvas.send_keys("+")
    view = opened.execute_script("return kvsim.map.view()")
    assert view["a1"] - view["a0"] == pytest.approx(1.0)  # one block
    canvas.send_keys("0")
    assert opened.execute_script("return kvsim.map.view()") == whole


def test_browser_page_follows_light_and_dark(opened: Any) -> None:
    ground = "return getComputedStyle(document.body).backgroundColor"
    ink = "return document.querySelector('[data-figure=figure-ttft] text').style.fill"
    light = opened.execute_script(ground), opened.execute_script(ink)
    opened.find_element("id", "theme").click()
    wait(opened, f"return (() => {{ {ink} }})() !== '{light[1]}'")
    dark = opened.execute_script(ground), opened.execute_script(ink)
    assert light[0] != dark[0]
    opened.find_element("id", "theme").click()
    assert faults(opened) == []


def test_page_fits_a_phones_width(opened: Any) -> None:
    size = {"width": 360, "height": 740, "deviceScaleFactor": 2, "mobile": True}
    opened.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        opened.refresh()
        wait(opened, "return document.body.dataset.drawn")
        wait(opened, "return document.documentElement.scrollWidth <= 360")
    finally:
        opened.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_markup_in_names_is_shown_as_text(browser: Any, tmp_path: Path) -> None:
    requests = [
        Request(id=f"{name}{copy}", arrival_ps=copy * 10**11, prompt_tokens=40, output_tokens=30)
        for copy in range(4)
        for name in EVIL
    ]
    scenario = {
        "model": {"name": "llama-2-7b"},
        "device": {"name": "a100-80gb"},
        "memory": {"kv_cache_tokens": 9000},
        "allocator": [{"kind": "paged", "label": name} for name in EVIL],
    }
    requests.append(Request(id="big<b>", arrival_ps=0, prompt_tokens=99999, output_tokens=1))
    result = Simulation(Scenario.from_table(scenario), requests).result(addresses=True)
    result.scenario["model"]["name"] = EVIL[0]
    open_page(browser, result, tmp_path)
    browser.execute_script("document.querySelector('#requests tbody tr:nth-child(2)').click()")
    wait(browser, "return kvsim.marked")
    assert browser.title != "taken"
    made = "return document.querySelectorAll('b, img, main script:not([type])').length"
    assert browser.execute_script(made) == 0
    shown = browser.execute_script(IDS)
    for name in EVIL:
        assert f"{name}0" in shown
    heads = browser.execute_script(
        "return [...document.querySelectorAll('#numbers thead bdi')].map(h => h.textContent)"
    )
    assert heads[: len(EVIL)] == list(EVIL)
    width = browser.execute_script("return [document.documentElement.scrollWidth, innerWidth]")
    assert width[0] <= width[1]
    assert faults(browser) == []
