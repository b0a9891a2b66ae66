"""Sources of nothing but blanks are looked at in a moment, by every reader."""

import time
from contextlib import suppress
from pathlib import Path

import pytest

from kvsim.plumbing.errors import InputError
from kvsim.readers.detect import readers
from kvsim.readers.reader import Source, look


@pytest.mark.parametrize("blank", ["\n", " ", "\t\n", "- \n", "vllm serve\n"])
def test_files_with_many_blank_lines_are_read_in_linear_time(tmp_path: Path, blank: str) -> None:
    """A quadratic search takes minutes of these."""
    path = tmp_path / "blank"
    path.write_text(blank * 65_536)
    source = look(path)
    for name, cls in readers(Source).items():
        began = time.process_time()
        if cls.sniff(source):
            with suppress(InputError, StopIteration, ValueError, KeyError):
                cls.read(source)
        assert time.process_time() - began < 10, name
