"""Each kind of page at two widths, light and dark: nothing overflows, the console is silent, and
axe-core finds nothing serious.

KVSIM_SCREENS=DIR saves the screenshots (`make screens`), to look at after a page was changed.
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
PREFIXES = "[{count=3,tokens={kind='fixed',tokens=64}}]"
BLOCKS = "--vary=allocator.paged.block_size=8,16,64"
PAGES = {
    "sweep": ["sweep", "--vary=workload.arrivals.rate_per_s=1,2,4", BLOCKS, "--repeat=2"],
    "sweep of words": ["sweep", "--vary=scheduler.victim=latest,least-computed"],
    "capacity": ["capacity", "--slo=ttft_s.p99=2", "--tolerance=0.2"],
    "pool": ["capacity", "--slo=ttft_s.p99=20", "--find=pool", "--rate=1", "--tolerance=0.2"],
    "tuned": ["capacity", "--slo=ttft_s.p99=2", "--find=max_num_seqs", "--values=2,8"],
    "doctor": ["doctor", "--requests=100", "--repeat=3"],
    "advise": ["advise", "--repeat=3", "--set=allocator=[{kind='paged'}]"],
    "attribution": ["attribute"],
    "measure": ["measure", "--jobs=1"],
    "cache": [
        "cache",
        "--belady",
        "--set=workload.prefixes=[{count=3,tokens={kind='fixed',tokens=64}}]",
    ],
    "fleet": ["run", "--set=fleet.replicas=3", "--set=allocator=[{kind='paged'}]"],
    "prefill and decode": [
        "run",
        "--set=allocator=[{kind='paged'}]",
        "--set=disaggregation={prefill={replicas=1},decode={replicas=1}}",
    ],
    "tier": [
        "run",
        "--set=allocator=[{kind='paged'}]",
        "--set=tier=[{kind='vllm-offloading',kv_offloading_size=4}]",
    ],
}
JOBS = ("sweep", "capacity", "doctor", "advise")
OBSERVED = Path(__file__).parents[2] / "reports" / "observed"
POINT = {
    "id": "one",
    "silicon_data_source": "2026-01-01.csv; silicon_concurrency=4",
    "backend": "vllm",
    "backend_version": "0.19.0",
    "system": "h100_sxm",
    "precision": "bf16",
    "model_path": "meta-llama/Llama-3.1-8B-Instruct",
    "isl": 256,
    "osl": 32,
    "batch_size": 4,
    "tp_size": 1,
    "silicon_ttft_ms": 30,
    "silicon_tpot_ms": 7.5,
}
STEP_TIME = f"--step-time={OBSERVED / 'served-paged.json'}"
SIZED = {"memory": ["memory", "gpt-oss-20b", "--device=h100"]}
VALIDATED = {
    "validate run": ["validate", "run", str(OBSERVED / "paged"), STEP_TIME],
    "validate points": ["validate", "points", "points.csv", "--step-time=roofline", "--jobs=1"],
}
STEPS = "decode_seqs,decode_context_tokens,seconds\n" + "".join(
    f"{seqs},{50 * seqs},{(5e-3 + 1e-5 * seqs) * (1 + 0.02 * (-1) ** seqs)}\n"
    for seqs in range(1, 20)
)
SIZES = {"screen": (1280, 900), "phone": (390, 844)}
# What overflows depends on the width alone, and contrast on the colours alone.
SHOWN = [("screen", "light"), ("phone", "dark")]
PICTURES = [(size, theme) for size in SIZES for theme in ("light", "dark")]
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
# Of the first screen: how far down the figure that leads and the first command begin.
FIRST = (
    "return ['.first .plot, #shares .plot', '.act code, pre.commands']"
    ".map(each => document.querySelector(each)).filter(each => each)"
    ".map(each => Math.round(each.getBoundingClientRect().top))"
)
STAYS = "return [...document.querySelectorAll('nav')].map(n => getComputedStyle(n).position)"
# What a reader copies of commands, and what they are.
COPIED = (
    "return [...document.querySelectorAll('pre.commands')].map(part => {"
    " getSelection().selectAllChildren(part); const copied = getSelection().toString();"
    " getSelection().removeAllRanges();"
    " return [copied, [...part.children].map(line => line.textContent).join('\\n')]})"
)
# Names in the cards that end in an ellipsis.
CUT = (
    "return [...document.querySelectorAll('.card .label')]"
    ".filter(t => t.scrollWidth > t.clientWidth + 1 || t.scrollHeight > t.clientHeight + 1)"
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


@pytest.fixture(scope="module", params=["report", "parity", *PAGES, *SIZED, *VALIDATED])
def page(
    request: pytest.FixtureRequest, traced: Result, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Path]:
    """The name of a kind of page, and its file."""
    name, folder = request.param, tmp_path_factory.mktemp("page")
    if name == "report":
        path = folder / "report.html"
        path.write_text(make_page(traced), encoding="utf-8")
        return name, path
    if name == "parity":
        (folder / "steps.csv").write_text(STEPS)
        path = folder / "parity.html"
        arguments = ["calibrate", "fit", str(folder / "steps.csv"), f"--parity={path}"]
        done = CliRunner().invoke(app, arguments, catch_exceptions=False)
        assert done.exit_code == 0
        return name, path
    (folder / "server.toml").write_text(to_toml(SCENARIO))
    (folder / "points.csv").write_text(
        ",".join(POINT) + "\n" + ",".join(map(str, POINT.values())) + "\n"
    )
    if name in PAGES:
        command, *options = PAGES[name]
        jobs = ["--jobs=1"] if command in JOBS else []
        arguments = [command, str(folder / "server.toml"), *options, *jobs]
    else:
        arguments = [
            str(folder / each) if each == "points.csv" else each
            for each in {**SIZED, **VALIDATED}[name]
        ]
    arguments.append(f"--out={folder / 'out'}")
    done = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert done.exit_code == 0
    (path,) = (folder / "out").glob("*.html")
    return name, path


@pytest.mark.parametrize(("size", "theme"), PICTURES if "KVSIM_SCREENS" in os.environ else SHOWN)
def test_pages_fit_both_widths_without_faults(
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
    for script in (TABLES, OUTSIDE, CUT, SMALL):
        assert browser.execute_script(script) == []
    begins = browser.execute_script(FIRST)
    assert begins
    assert all(top < height for top in begins)
    assert browser.execute_script(STAYS) == ([] if name == "parity" else ["sticky"])
    copied = browser.execute_script(COPIED)
    assert [text.strip() for text, _ in copied] == [lines.strip() for _, lines in copied]
    assert faults(browser) == []
    found = axe.Axe().run(browser)["violations"]
    bad = [each for each in found if each["impact"] in ("serious", "critical")]
    assert [(each["id"], [node["html"] for node in each["nodes"]]) for each in bad] == []
