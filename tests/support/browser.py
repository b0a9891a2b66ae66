"""A real browser without a window, and what it complained of."""

import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from kvsim.plumbing.errors import InputError
from kvsim.report.browser import find_browser

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
DRIVER = shutil.which("chromedriver")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
MISSING = "no chromium with its chromedriver is installed"
LONGEST_S = 300.0  # a machine may be busy; what never comes true is a fault after this time


def _draws() -> bool:
    try:
        find_browser()
    except InputError:
        return False
    return True


needs_drawing = pytest.mark.skipif(
    not _draws(), reason="needs a browser (chromium) on this machine"
)


def start(profile: Path) -> Any:
    """A browser with a fresh profile in a folder; whoever starts it ends it with `quit`."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    assert BROWSER is not None
    options.binary_location = BROWSER
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    service = webdriver.ChromeService(DRIVER, log_output=os.devnull)
    driver = webdriver.Chrome(options=options, service=service)
    driver.get("about:blank")  # a new browser loads a page of its own
    driver.execute_cdp_cmd("Network.enable", {})
    driver.set_script_timeout(LONGEST_S)
    return driver


def wait(browser: Any, script: str) -> Any:
    """What the script returns as soon as that is something."""
    end = time.monotonic() + LONGEST_S
    while time.monotonic() < end:
        found = browser.execute_script(script)
        if found:
            return found
        time.sleep(0.05)
    said = browser.execute_script("return document.body.innerText.slice(0, 600)")
    raise AssertionError(f"never true: {script}; the page says: {said}")


def forget(browser: Any) -> None:
    """What was said and asked so far is no matter."""
    browser.get_log("browser"), browser.get_log("performance")


def faults(browser: Any, own: tuple[str, ...] = ("file:", "data:", "blob:")) -> list[str]:
    """What the console complained of, and what was asked of others than `own` addresses."""
    said = [entry["message"] for entry in browser.get_log("browser")]
    asked = []
    for entry in browser.get_log("performance"):
        message = json.loads(entry["message"])["message"]
        if message["method"] == "Network.requestWillBeSent":
            asked.append(message["params"]["request"]["url"])
    return said + [url for url in asked if not url.startswith(own)]
