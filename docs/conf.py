"""The documentation site: `make docs` builds README, docs/ and reports/ with Sphinx."""

import re
from pathlib import Path
from typing import TYPE_CHECKING

from kvsim.version import VERSION

if TYPE_CHECKING:
    from sphinx.application import Sphinx

project = "kvsim"
version = release = VERSION
extensions = ["myst_parser", "sphinx.ext.autodoc"]
default_role = "code"  # docstrings have names between single backticks
autodoc_typehints = "signature"
html_theme = "furo"
html_title = "kvsim"
myst_heading_anchors = 4
suppress_warnings = ["myst.header"]  # generated tables begin with a heading of the second level

# What the sidebar calls each page; "" is the page's own title.
NAVIGATION = {
    "Start": {
        "README": "Install and run",
    },
    "My server": {
        "docs/importing": "Import a server",
        "docs/record": "Record a running server",
        "docs/size-a-pool": "",
        "docs/doctor": "",
        "docs/find-the-best-flag": "",
        "docs/what-if": "Ask what if",
        "docs/fleets": "Size a fleet and its router",
        "docs/prefill-or-both": "Split prefill from decode",
        "docs/explain-a-hit-rate": "",
        "docs/tiers": "Spill KV to host memory",
        "docs/llamacpp": "Simulate llama.cpp and Ollama",
        "docs/step-times": "Learn step times",
        "docs/recording-a-run": "Record a run",
    },
    "Research": {
        "docs/compare-allocators": "",
        "docs/python": "Call it from Python",
        "docs/api": "Look up the API",
        "docs/results": "Read and export results",
        "docs/a-week-of-azure": "Estimate a week of a trace",
    },
    "Learning": {
        "docs/why-paging": "See why paging won",
        "docs/teach-paging": "",
        "docs/first-scenario": "Write a first scenario",
        "docs/how-it-works": "Follow a request",
        "docs/answers": "Read answers to real questions",
        "docs/answers/pool-sizes": "Answers: size of the pool",
        "docs/answers/several-gpus": "Answers: several GPUs",
        "docs/answers/queues-and-flags": "Answers: queues and flags",
        "docs/answers/prefix-hits": "Answers: prefix hits",
        "docs/answers/host-memory": "Answers: host memory",
    },
    "Reference": {
        "docs/commands": "",
        "docs/scenario": "Keys of a scenario",
        "docs/hybrid-models": "Models with windows and states",
        "docs/speculative-decoding": "Speculative decoding",
        "docs/requests": "Images, adapters and parallel samples",
        "docs/limits": "",
    },
    "Evidence": {
        "docs/accuracy": "",
        "docs/speed": "Speed",
        "docs/invariants": "",
        **dict.fromkeys(
            (  # noqa: SIM905 - a name a word
                "reports/README reports/real-run/README reports/real-runs/README "
                "reports/schedules/README reports/tiers-measured/README "
                "reports/real-runs/table reports/observed/README reports/startup-logs/README "
                "reports/points/README reports/points/disaggregated reports/published/README "
                "reports/published/table reports/states-or-tokens/README "
                "reports/vllm-or-sglang/README reports/recipes/README reports/recipes/agents "
                "reports/recipes/azure-conv reports/recipes/chat calibration/README "
                "benchmarks/README"
            ).split(),
            "",
        ),
    },
    "Project": {"CONTRIBUTING": "", "CHANGELOG": ""},
}
root_doc = "docs/index"
include_patterns = [
    f"{root_doc}.md",
    *(f"{page}.md" for pages in NAVIGATION.values() for page in pages),
]


def _navigate(app: "Sphinx", page: str, source: list[str]) -> None:
    """Append the navigation to the landing page, which stays plain Markdown."""
    if page == root_doc:
        for title, pages in NAVIGATION.items():
            entries = "\n".join(
                f"{name} </{path}>" if name else f"/{path}" for path, name in pages.items()
            )
            source[0] += f"\n```{{toctree}}\n:hidden:\n:caption: {title}\n\n{entries}\n```\n"


def _list_fields(
    app: "Sphinx", what: str, name: str, obj: object, options: object, lines: list[str]
) -> None:
    """Make a list of the fields of a docstring, each `name: what it is.` in its own line."""
    made: list[str] = []
    for paragraph in "\n".join(lines).split("\n\n"):
        words = " ".join(paragraph.split())
        # An item of the list before each lower-case name with a colon that begins a sentence.
        fields = re.sub(r"(?:^|(?<=\. ))([a-z]\w*(?:, \w+)*): ", r"\n* **\1**: ", words)
        text, *items = fields.split("\n")
        made += [text, "", *items, ""]
    lines[:] = made


def _write_index(app: "Sphinx", error: Exception | None) -> None:
    """Write index.html, which leads to the landing page."""
    if error is None:
        refresh = f'<meta http-equiv="refresh" content="0; url={root_doc}.html">'
        line = (
            f'<!doctype html><meta charset="utf-8">{refresh}<a href="{root_doc}.html">kvsim</a>\n'
        )
        Path(app.outdir, "index.html").write_text(line)


def setup(app: "Sphinx") -> None:
    """Connect them to Sphinx's events."""
    app.connect("autodoc-process-docstring", _list_fields)
    app.connect("source-read", _navigate)
    app.connect("build-finished", _write_index)
