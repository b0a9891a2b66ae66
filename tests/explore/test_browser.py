"""The explorer in a real browser: change, cancel, pin, sweep, save; no external requests."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.browser import BROWSER, DRIVER, LONGEST_S, MISSING, faults, forget, start, wait

from kvsim.explore.server import serve
from kvsim.plumbing.toml import to_toml
from kvsim.report.figures import FIGURES

pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
pytestmark = pytest.mark.skipif(not (BROWSER and DRIVER), reason=MISSING)

EVIL = (
    "<script>document.title='taken'</script>"
    "<img src=x onerror=\"document.title='taken'\">"
    "\u05e9\u05dc\u05d5\u05dd \u202e gnp.exe" + "long" * 400
)
SMALL = {
    "model": {"name": "opt-13b"},
    "device": {"name": "a100-40gb"},
    "memory": {"kv_cache_tokens": 6000},
    "allocator": [{"kind": "paged"}, {"kind": "doubling"}],
    "workload": {
        "kind": "synthetic",
        "num_requests": 40,
        "arrivals": {"kind": "poisson", "rate_per_s": 3.0},
        "prompt": {"kind": "fixed", "tokens": 200},
        "output": {"kind": "uniform", "max_tokens": 300},
    },
}
NUMBERS = "return [...document.querySelectorAll('.card .number')].map(e => e.textContent).join()"
SETTLED = (
    "return document.querySelectorAll('#results .card').length === 4"
    " && document.getElementById('progress').textContent === ''"
)
AT_FIRST: list[str] = []  # the address of the page as it is opened
PLOTS = "return document.querySelectorAll('#results .js-plotly-plot .main-svg').length"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    driver = start(tmp_path_factory.mktemp("profile"))
    driver.set_window_size(1400, 1000)
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a page that starts from a scenario file with a hostile name."""
    folder = tmp_path_factory.mktemp("<b>served")
    path = folder / "<b onclick=x>small.toml"
    path.write_text(to_toml(SMALL))
    heard: list[str] = []
    ready = threading.Event()

    def hear(address: str) -> None:
        heard.append(address)
        ready.set()

    stop = threading.Event()
    thread = threading.Thread(
        target=serve, args=(str(path), "127.0.0.1", 0, hear, stop), daemon=True
    )
    thread.start()
    assert ready.wait(60)
    yield heard[0]
    stop.set()
    thread.join(30)
    assert not thread.is_alive()


@pytest.fixture
def opened(browser: Any, served: str) -> Iterator[Any]:
    """The loaded page; afterwards checks that the console and the network log are clean.

    Each setting is in the address, so a page at its first address is reused by the next test:
    drawing all figures once costs as much as most of these tests.
    """
    forget(browser)
    if not AT_FIRST or browser.current_url != AT_FIRST[0]:
        browser.get(served)
        wait(browser, SETTLED)
        AT_FIRST[:] = [browser.current_url]
    yield browser
    assert faults(browser, (served.split("?")[0], "data:", "blob:", "about:")) == []
    assert browser.title == "kvsim explore"


def slide(browser: Any, times: int) -> None:
    from selenium.webdriver.common.keys import Keys

    handle = browser.find_element("css selector", "#controls [role=slider]")
    handle.send_keys(*[Keys.ARROW_RIGHT] * times)


def kept(browser: Any, key: str) -> str:
    return f"return (document.querySelector('{key}') || document.head).textContent"


def test_browser_shows_the_map_and_the_report(opened: Any, served: str) -> None:
    frame = opened.find_element("css selector", "#results iframe")
    opened.switch_to.frame(frame)
    wait(opened, "return document.querySelector('#map').dataset.ready")
    assert opened.execute_script("return kvsim.map.current().num") > 10
    opened.switch_to.default_content()
    address = opened.find_element("id", "report").get_attribute("href")
    opened.get(address)
    wait(opened, "return document.body.dataset.drawn")
    opened.get(served)
    wait(opened, SETTLED)


def test_explorer_page_loads_the_reduced_plotly(opened: Any) -> None:
    """Dash's plotly takes 4.8 MB, and a second more on a browser with two cores."""
    asked = "return performance.getEntriesByType('resource').map(e => new URL(e.name).pathname)"
    paths = opened.execute_script(asked)
    assert "/plotly.js" in paths
    assert not [path for path in paths if path.endswith("plotly.min.js")]


def test_explorer_saves_the_scenario_as_a_file(opened: Any, tmp_path: Path) -> None:
    opened.execute_cdp_cmd(
        "Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)}
    )
    opened.find_element("id", "save").click()
    end = time.monotonic() + LONGEST_S
    while not list(tmp_path.glob("*.toml")) and time.monotonic() < end:
        time.sleep(0.05)
    (saved,) = tmp_path.glob("*.toml")
    from kvsim.simulation import simulate

    again = simulate(str(saved)).runs[0].summary["output_tokens_per_s"]
    shown = opened.execute_script("return document.querySelector('.card .number').textContent")
    from kvsim.report.measures import MEASURES

    assert MEASURES["tokens_per_s"].form(again) == shown


def test_page_follows_light_and_dark_without_accessibility_faults(opened: Any) -> None:
    axe = pytest.importorskip("axe_core_python.selenium", reason="axe-core-python is not installed")
    ground = "return getComputedStyle(document.body).backgroundColor"
    ink = "return document.querySelector('#results .xtick text').style.fill"
    light = opened.execute_script(ground)
    for theme in ("light", "dark"):
        if theme == "dark":
            opened.find_element("id", "theme-button").click()
            wait(opened, f"return (() => {{ {ground} }})() !== '{light}'")
            wait(opened, f"return (() => {{ {ink} }})() === 'rgb(230, 237, 243)'")
        assert opened.execute_script("return document.documentElement.dataset.theme") == theme
        found = axe.Axe().run(opened)["violations"]
        assert [(each["id"], [node["html"] for node in each["nodes"]]) for each in found] == []


def test_figures_are_drawn_and_the_slider_changes_the_numbers(opened: Any) -> None:
    wait(opened, f"{PLOTS} >= {len(list(FIGURES)) - 2}")
    before = opened.execute_script(NUMBERS)
    slide(opened, 9)
    wait(opened, f"return (() => {{ {NUMBERS} }})() !== `{before}`")
    wait(opened, SETTLED)
    assert "rate_per_s" in opened.current_url
    after = opened.execute_script(NUMBERS)
    opened.refresh()  # the address holds it
    wait(opened, SETTLED)
    assert opened.execute_script(NUMBERS) == after
    opened.back()
    wait(opened, f"return (() => {{ {NUMBERS} }})() === `{before}`")


def test_a_cancelled_run_stops(opened: Any) -> None:
    from selenium.webdriver.common.keys import Keys

    before = opened.execute_script(NUMBERS)
    box = opened.find_element("xpath", "//label[@data-key='num_requests']//input")
    box.send_keys(Keys.CONTROL, "a")
    box.send_keys("150000", Keys.ENTER)
    wait(opened, f"{kept(opened, '#results-of')}.includes('previous settings')")
    assert opened.execute_script("return document.getElementById('results').className") == "stale"
    wait(opened, f"{kept(opened, '#results-of')}.includes('the first 100 of 150,000 requests')")
    assert opened.execute_script("return document.getElementById('results').className") == ""
    wait(opened, f"return (() => {{ {NUMBERS} }})() !== `{before}`")
    before = opened.execute_script(NUMBERS)
    cancel = opened.find_element("id", "cancel")
    wait(opened, "return !document.getElementById('cancel').disabled")
    wait(opened, f"{kept(opened, '#progress')} !== ''")
    cancel.click()
    wait(opened, f"{kept(opened, '#progress')} === 'cancelled'")
    assert opened.execute_script("return document.getElementById('cancel').disabled")
    assert opened.execute_script(NUMBERS) == before  # what was there stands


def test_invalid_value_is_shown_as_one_line(opened: Any) -> None:
    from selenium.webdriver.common.keys import Keys

    box = opened.find_element("xpath", "//label[@data-key='block_size']//input")
    box.send_keys(Keys.CONTROL, "a")
    box.send_keys("0", Keys.ENTER)
    said = wait(opened, kept(opened, "#fault"))
    assert "block_size" in said
    beside = "return arguments[0].closest('.field').querySelector('.said-wrong').textContent"
    assert opened.execute_script(beside, box) == said
    box.send_keys(Keys.CONTROL, "a")
    box.send_keys("64", Keys.ENTER)
    wait(opened, f"{kept(opened, '#fault')} === ''")
    wait(opened, SETTLED)
    assert "block_size%3D64" in opened.current_url or "block_size+%3D+64" in opened.current_url


def test_pinned_runs_are_shown_together_and_stored_in_the_address(opened: Any) -> None:
    opened.find_element("id", "pin").click()
    wait(opened, "return document.querySelectorAll('.pins button').length === 1")
    slide(opened, 9)
    wait(opened, "return document.querySelectorAll('#numbers thead th').length === 5")
    wait(opened, "return document.querySelectorAll('#results iframe').length === 2")
    forget(opened)
    opened.refresh()
    wait(opened, "return document.querySelectorAll('#numbers thead th').length === 5")
    opened.find_element("css selector", ".pins button").click()
    wait(opened, "return document.querySelectorAll('#numbers thead th').length === 3")


def test_explorer_draws_a_swept_key_as_a_curve(opened: Any) -> None:
    from selenium.webdriver.common.keys import Keys

    knob = wait(opened, "return document.querySelector('#sweep-low').value")
    assert float(knob) > 0
    box = opened.find_element("id", "sweep-count")
    box.send_keys(Keys.CONTROL, "a")
    box.send_keys("3", Keys.TAB)
    opened.execute_script("document.getElementById('sweep-run').click()")
    points = "return document.querySelectorAll('#curve .point').length"
    wait(opened, f"{points} === {2 * 3}")
    assert "sweep=" in opened.current_url


def test_browser_tour_shows_its_cards(opened: Any) -> None:
    opened.find_element("xpath", "//button[text()='7 copy on write']").click()
    wait(opened, f"{kept(opened, '#stop h2')}.startsWith('7 of 7')")
    # Under the text of a stop stand its own numbers or none, and its picture is on the screen.
    looks = "return getComputedStyle(document.getElementById('results')).visibility"
    assert opened.execute_script(looks) == "hidden"
    wait(opened, f"return (() => {{ {looks} }})() === 'visible'")
    wait(opened, SETTLED)
    top = "return document.querySelector('#results .js-plotly-plot').getBoundingClientRect().top"
    assert opened.execute_script(f"{top} + scrollY") < 900
    assert "copy on write" in opened.execute_script(kept(opened, ".cards"))
    opened.find_element("xpath", "//button[text()='Two answers']").click()
    wait(opened, "return location.search.includes('workload.n')")
    wait(opened, SETTLED)


def test_markup_in_names_is_shown_as_text(opened: Any) -> None:
    from selenium.webdriver.common.keys import Keys

    opened.execute_script(
        "document.querySelectorAll('.allocator details').forEach(d => { d.open = true; })"
    )
    box = opened.find_element("xpath", "//label[@data-key='label']//input")
    opened.execute_script("arguments[0].scrollIntoView({block: 'center'})", box)
    box.send_keys(Keys.CONTROL, "a")
    box.send_keys(EVIL, Keys.ENTER)
    heads = "return [...document.querySelectorAll('#numbers thead bdi')].map(h => h.textContent)"
    wait(opened, f"return (() => {{ {heads} }})().includes({EVIL!r})")
    wait(opened, SETTLED)
    made = "return document.querySelectorAll('#results b, #results img, .explore script').length"
    assert opened.execute_script(made) == 0
    width = opened.execute_script("return [document.documentElement.scrollWidth, innerWidth]")
    assert width[0] <= width[1]


def test_page_fits_a_phones_width(opened: Any) -> None:
    size = {"width": 360, "height": 740, "deviceScaleFactor": 2, "mobile": True}
    opened.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        opened.refresh()
        wait(opened, SETTLED)
        wait(opened, "return document.documentElement.scrollWidth <= 360")
        assert not opened.execute_script("return document.getElementById('controls-fold').open")
    finally:
        opened.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
