"""The notebook of the docs runs as it stands, in a kernel of its own."""

import json
from pathlib import Path

import pytest

NOTEBOOK = Path(__file__).parents[2] / "docs" / "notebook.ipynb"


def test_the_notebook_runs_and_shows_its_result(tmp_path: Path) -> None:
    pytest.importorskip("ipykernel", reason="ipykernel is not installed")
    client = pytest.importorskip("nbclient", reason="nbclient is not installed")
    nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    resources = {"metadata": {"path": str(tmp_path)}}
    client.NotebookClient(notebook, timeout=600, resources=resources).execute()
    shown, row, _, loop = (cell.outputs for cell in notebook.cells if cell.cell_type == "code")
    page = shown[-1]["data"]["text/html"]
    for text in ("max-buffer", "TTFT p50", "overprovisioned", "200 requests"):
        assert text in page
    assert row[-1]["data"]["text/html"].count("<tr") == 4
    said = "".join(each["text"] for each in loop if each.get("name") == "stdout")
    first, second = (float(line.split()[1]) for line in said.splitlines())
    assert 0 < first < second  # larger blocks, more of them empty


def test_the_notebook_is_kept_without_what_a_run_leaves() -> None:
    for cell in json.loads(NOTEBOOK.read_text())["cells"]:
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None
