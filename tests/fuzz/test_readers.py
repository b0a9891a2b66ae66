"""Every reader on files damaged in bytes, fields and nested values: it reads the file or raises a
one-line error. The files are always the same; `make fuzz` makes new ones.
"""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.fuzzing.campaign import CORPUS, case, read
from support.fuzzing.targets import TARGETS

SLOW = (
    *(name for name in TARGETS if name.startswith("import-")),
    *(
        "scenario",
        "scenario-structure",
        "calibration",
        "result-summary",
        "result-requests",
        "result-memory",
    ),
)


@pytest.mark.parametrize("name", TARGETS)
def test_damaged_file_is_read_or_refused_in_one_line(name: str) -> None:
    target = TARGETS[name]

    @settings(max_examples=10 if name in SLOW else 30, deadline=None, derandomize=True)
    @given(number=st.integers(0, 10**9))
    def damaged(number: int) -> None:
        read(target, Path(folder), case(name, number))

    with tempfile.TemporaryDirectory() as folder:
        target.prepare(Path(folder))
        for content in target.seeds():
            assert read(target, Path(folder), content), content[:200]
        damaged()


@pytest.mark.parametrize("path", sorted(CORPUS.rglob("*/*")), ids=lambda path: str(path.name))
def test_recorded_fuzz_failures_are_read_or_refused(path: Path, tmp_path: Path) -> None:
    target = TARGETS[path.parent.name]
    target.prepare(tmp_path)
    read(target, tmp_path, path.read_bytes())
