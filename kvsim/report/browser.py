"""Render a page as PNG, PDF or final HTML with a headless browser of this machine."""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from kvsim.plumbing.errors import InputError

NAMES = (
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "chrome",
    "msedge",
)
VARIABLE = "KVSIM_BROWSER"
WIDTH_PX = 1280
SECONDS = 180
# The page's own clock runs ahead until it has drawn itself.
_FLAGS = (
    *("--headless", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    "--virtual-time-budget=20000",
)


def photographed(page: str) -> bytes:
    """A screenshot of the whole page, as PNG."""
    drawn = re.search(r'<body[^>]* data-height="(\d+)"', dom(page))
    if drawn is None:
        raise InputError(
            "the browser did not draw the page", where=VARIABLE, value=str(find_browser())
        )
    size = f"--window-size={WIDTH_PX},{drawn.group(1)}"
    return _run(page, [size, "--screenshot={out}"], "page.png")


def dom(page: str) -> str:
    """The page as HTML after its scripts have run."""
    made = _run(page, ["--dump-dom", f"--window-size={WIDTH_PX},1000"])
    return made.decode(errors="replace")


def printed(page: str) -> bytes:
    """The page printed as PDF."""
    return _run(page, ["--print-to-pdf={out}", "--no-pdf-header-footer"], "page.pdf")


def find_browser() -> Path:
    """Path of the browser in KVSIM_BROWSER, or of the first installed one of NAMES."""
    wanted = os.environ.get(VARIABLE)
    found = next(filter(None, map(shutil.which, [wanted] if wanted else NAMES)), None)
    if found is None:
        raise InputError(
            "no browser draws it" if wanted is None else "no such browser",
            where=VARIABLE,
            value=wanted,
            remedy=f"install Chromium or name one in {VARIABLE}; html, md and csv need none",
        )
    return Path(found)


def _run(page: str, flags: Sequence[str], out_name: str | None = None) -> bytes:
    """The browser's stdout, or the contents of the file `out_name` that it wrote."""
    browser = find_browser()
    root = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    with tempfile.TemporaryDirectory() as folder:
        file, out = Path(folder) / "page.html", Path(folder) / (out_name or "out")
        file.write_text(page, encoding="utf-8")
        command = [
            str(browser), *_FLAGS, *root, f"--user-data-dir={folder}/profile",
            *(flag.replace("{out}", str(out)) for flag in flags), file.as_uri(),
        ]  # fmt: skip
        try:
            done = subprocess.run(  # noqa: S603 - the user's own browser, on our own page
                command, capture_output=True, timeout=SECONDS, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise InputError(
                "the browser does not run", where=VARIABLE, value=f"{browser}: {error}"
            ) from None
        if out_name is None:
            return done.stdout
        if not out.exists():
            lines = done.stderr.decode(errors="replace").strip().splitlines()
            raise InputError(
                "the browser wrote nothing", where=VARIABLE, value=f"{browser}: {lines[-1:]}"
            )
        return out.read_bytes()
