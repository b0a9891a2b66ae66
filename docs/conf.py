"""The documentation site: `make docs` builds README, docs/ and reports/ with Sphinx."""

from pathlib import Path
from typing import TYPE_CHECKING

from kvsim.version import VERSION

if TYPE_CHECKING:
    from sphinx.application import Sphinx

project = "kvsim"
version = release = VERSION
extensions = ["myst_parser"]
html_theme = "furo"
html_title = "kvsim"
myst_heading_anchors = 4
suppress_warnings = ["myst.header"]  # generated tables begin with a heading of the second level

NAVIGATION = {
    "Tasks": (
        "docs/first-scenario docs/size-a-pool docs/answers docs/doctor "
        "docs/find-the-best-flag docs/what-if docs/fleets docs/prefill-or-both "
        "docs/explain-a-hit-rate docs/compare-allocators docs/importing "
        "docs/recording-a-run docs/step-times docs/why-paging docs/teach-paging"
        " docs/a-week-of-azure"
    ),
    "Reference": (
        "docs/commands docs/scenario docs/results docs/python docs/schedules "
        "docs/hybrid-models docs/speculative-decoding docs/requests docs/tiers "
        "docs/tiers-measured docs/llamacpp docs/how-it-works docs/limits"
    ),
    "Evidence": (
        "docs/accuracy reports/README reports/real-run/README reports/real-runs/README "
        "reports/real-runs/table reports/observed/README reports/startup-logs/README "
        "reports/points/README reports/points/disaggregated "
        "reports/published/README reports/published/table "
        "reports/states-or-tokens/README reports/vllm-or-sglang/README reports/recipes/README "
        "reports/recipes/agents reports/recipes/azure-conv reports/recipes/chat "
        "calibration/README docs/speed "
        "docs/invariants"
    ),
    "Project": "CONTRIBUTING CHANGELOG",
}
root_doc = "README"
include_patterns = [
    "README.md",
    *(f"{page}.md" for pages in NAVIGATION.values() for page in pages.split()),
]


def _navigate(app: "Sphinx", page: str, source: list[str]) -> None:
    """Append the navigation to the README, which stays plain Markdown."""
    if page == root_doc:
        for title, pages in NAVIGATION.items():
            entries = "\n".join(f"/{name}" for name in pages.split())
            source[0] += f"\n```{{toctree}}\n:hidden:\n:caption: {title}\n\n{entries}\n```\n"


def _write_index(app: "Sphinx", error: Exception | None) -> None:
    """Write index.html, which leads to the README."""
    if error is None:
        refresh = '<meta http-equiv="refresh" content="0; url=README.html">'
        line = f'<!doctype html><meta charset="utf-8">{refresh}<a href="README.html">kvsim</a>\n'
        Path(app.outdir, "index.html").write_text(line)


def setup(app: "Sphinx") -> None:
    """Connect both to Sphinx's events."""
    app.connect("source-read", _navigate)
    app.connect("build-finished", _write_index)
