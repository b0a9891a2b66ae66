"""Files of nothing but line ends: little memory, and one clear line."""

import gzip
import tracemalloc
from pathlib import Path

import pytest

from kvsim.plumbing.errors import InputError
from kvsim.plumbing.reading import files
from kvsim.readers.reader import look

MIB = 1 << 20


def test_a_small_gzip_of_blank_lines_takes_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "blank.gz"
    path.write_bytes(gzip.compress(b"\n" * (300 * MIB), 6))
    assert path.stat().st_size < MIB
    tracemalloc.start()
    with pytest.raises(InputError, match=r"too large|too many lines"):
        files.read_text(path)
    assert tracemalloc.get_traced_memory()[1] < 600 * MIB  # it was ten times as much
    tracemalloc.stop()


@pytest.mark.parametrize("end", ["\n", "\r", "\v", "\x1e"])
def test_file_with_too_many_lines_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    monkeypatch.setattr(files, "MOST_LINES", 1000)
    path = tmp_path / "lines"
    path.write_text("a" + end * 1001 + "b")
    with pytest.raises(InputError, match=r"too many lines; got 1,001; limit 1,000"):
        look(path)
    with pytest.raises(InputError, match="too many lines"):
        files.read_text(path)
    path.write_text("a" + end * 1000 + "b")
    assert look(path).text.endswith("b")


def test_blank_lines_at_the_end_are_dropped_and_not_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "MOST_LINES", 10)
    path = tmp_path / "lines"
    path.write_bytes(b"one\r\ntwo\t \n" + b" \r\n\n" * 20)
    assert files.read_text(path).lines == ["one", "two\t "]
