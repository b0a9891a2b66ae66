"""Each kind of page at two widths, light and dark: nothing overflows, the console is silent, and
axe-core finds nothing serious.

KVSIM_SCREENS=DIR keeps the pictures (`make screens`), for whoever changes a page to look at.
"""

import base64
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.browser import BROWSER, DRIVER, MISSING, faults, forget, start, wait
from typer.testing import CliRunner

from kvsim.cli import app
from kvsim.plumbing.toml import to_toml
from kvsim.report.page import make_page
from kvsim.results.result import Result

pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
axe = pytest.importorskip("axe_core_python.selenium", reason="axe-core-python is not installed")
pytestmark = pytest.mark.skipif(not (BROWSER and DRIVER), reason=MISSING)

SCENARIO = {
    "model": {"name": "opt-13b"},
    "device": {"name": "a100-40gb"},
    "memory": {"kv_cache_tokens": 6000},
    "allocator": [{"kind": "max-buffer"}, {"kind": "paged"}],
    "scheduler": {"kind": "continuous", "max_num_seqs": 4},
    "workload": {
        "kind": "synthetic",
        "num_requests": 100,
        "arrivals": {"kind": "poisson", "rate_per_s": 3.0},
        "prompt": {"kind": "uniform", "min_tokens": 20, "max_tokens": 200},
        "output": {"kind": "uniform", "max_tokens": 200},
    },
}
BLOCKS = "--vary=allocator.paged.block_size=8,16,64"
PAGES = {
    "sweep": ["sweep", "--vary=workload.arrivals.rate_per_s=1,2,4", BLOCKS, "--repeat=2"],
    "sweep of words": ["sweep", "--vary=scheduler.victim=latest,least-computed"],
    "capacity": ["capacity", "--slo=ttft_s.p99=2", "--tolerance=0.2"],
    "pool": ["capacity", "--slo=ttft_s.p99=20", "--find=pool", "--rate=1", "--tolerance=0.2"],
    "tuned": ["capacity", "--slo=ttft_s.p99=2", "--find=max_num_seqs", "--values=2,8"],
    "doctor": ["doctor", "--requests=100", "--repeat=3"],
    "advise": ["advise", "--repeat=3", "--set=allocator=[{kind='paged'}]"],
}
SIZES = {"screen": (1280, 900), "phone": (390, 844)}
WIDE = "return [document.documentElement.scrollWidth, innerWidth]"
TABLES = (
    "return [...document.querySelectorAll('table.texts, table.grid')]"
    ".filter(t => t.getBoundingClientRect().width > t.parentElement.clientWidth + 1)"
    ".map(t => t.textContent.trim().slice(0, 60))"
)
OUTSIDE = (
    "return [...document.querySelectorAll('svg text')].filter(t => {const r ="
    " t.getBoundingClientRect(); return r.width && (r.right > innerWidth + 1 || r.left < -1)})"
    ".map(t => t.textContent)"
)
SMALL = (
    "return [...document.querySelectorAll('svg text, td, th, p')].filter(t => t.textContent.trim()"
    " && parseFloat(getComputedStyle(t).fontSize) < 9).map(t => t.textContent)"
)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    driver = start(tmp_path_factory.mktemp("profile"))
    yield driver
    driver.quit()


@pytest.fixture(scope="module", params=["report", *PAGES])
def page(
    request: pytest.FixtureRequest, traced: Result, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Path]:
    """The name of a kind of page, and a file of it."""
    name, folder = request.param, tmp_path_factory.mktemp("page")
    if name == "report":
        path = folder / "report.html"
        path.write_text(make_page(traced), encoding="utf-8")
        return name, path
    scenario = folder / "server.toml"
    scenario.write_text(to_toml(SCENARIO))
    command, *options = PAGES[name]
    arguments = [command, str(scenario), *options, "--jobs=1", f"--out={folder / 'out'}"]
    done = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert done.exit_code == 0
    (path,) = (folder / "out").glob("*.html")
    return name, path


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_page_is_whole_and_can_be_read(
    browser: Any, page: tuple[str, Path], size: str, theme: str
) -> None:
    name, path = page
    width, height = SIZES[size]
    shape = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": size == "phone"}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", shape)
    forget(browser)
    browser.get(f"{path.as_uri()}?theme={theme}")
    wait(browser, "return document.body.dataset.drawn")
    assert browser.execute_script("return document.documentElement.dataset.theme") == theme
    if folder := os.environ.get("KVSIM_SCREENS"):
        shot = browser.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": False})
        target = Path(folder) / f"{name.replace(' ', '-')}-{size}-{theme}.png"
        target.write_bytes(base64.b64decode(shot["data"]))
    wide, room = browser.execute_script(WIDE)
    assert wide <= room
    for script in (TABLES, OUTSIDE, SMALL):
        assert browser.execute_script(script) == []
    assert faults(browser) == []
    found = axe.Axe().run(browser)["violations"]
    bad = [each for each in found if each["impact"] in ("serious", "critical")]
    assert [(each["id"], [node["html"] for node in each["nodes"]]) for each in bad] == []
