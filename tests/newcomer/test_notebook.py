"""The notebook of the docs runs as it stands, in a kernel of its own."""

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

NOTEBOOK = Path(__file__).parents[2] / "docs" / "notebook.ipynb"


def test_the_notebook_runs_and_shows_its_result(tmp_path: Path) -> None:
    pytest.importorskip("ipykernel", reason="ipykernel is not installed")
    client = pytest.importorskip("nbclient", reason="nbclient is not installed")
    nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    resources = {"metadata": {"path": str(tmp_path)}}
    client.NotebookClient(notebook, timeout=600, resources=resources).execute()
    shown, ttft, shares, ledger, table, _, loop = (
        cell.outputs for cell in notebook.cells if cell.cell_type == "code"
    )
    page = shown[-1]["data"]["text/html"]
    for text in ("max-buffer", "TTFT p50", "overprovisioned", "200 requests"):
        assert text in page
    assert table[-1]["data"]["text/html"].count("<tr") == 4
    for drawn in (ttft, shares, ledger, loop):
        assert drawn[-1]["data"]["application/vnd.plotly.v1+json"]["data"]
    (line,) = loop[-1]["data"]["application/vnd.plotly.v1+json"]["data"]
    lost = decoded(line["y"])
    assert lost == sorted(lost)  # larger blocks, more of them empty
    assert len(lost) == 6


def decoded(values: Any) -> list[float]:
    """Plotly's numbers, which it may hold as base64 of doubles."""
    if isinstance(values, dict):
        values = np.frombuffer(base64.b64decode(values["bdata"]), dtype=values["dtype"]).tolist()
    return list(values)


def test_notebook_is_stored_without_outputs() -> None:
    for cell in json.loads(NOTEBOOK.read_text())["cells"]:
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None
