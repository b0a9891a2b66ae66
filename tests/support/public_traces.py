"""Public traces, which are not ours to keep: found where they are, and missed with a reason."""

import os
from pathlib import Path

import pytest

VARIABLE = "KVSIM_DATA_DIR"


def public_trace(file_name: str) -> Path:
    """The path of a public trace's file; the test is skipped where there is none."""
    folder = os.environ.get(VARIABLE)
    if not folder:
        pytest.skip(f"{VARIABLE} is not set: it names the folder of public traces")
    path = Path(folder) / file_name
    if not path.exists():
        pytest.skip(f"{file_name} is not in {VARIABLE}")
    return path
