"""Whatever a file holds, a reader answers or says in one line why not; it never hangs or breaks."""

import contextlib
import gzip
import os
import threading
import tracemalloc
from decimal import Decimal
from pathlib import Path

import pytest

from kvsim.plumbing.errors import InputError
from kvsim.plumbing.reading import csv_rows, files, json_text, toml_text
from kvsim.plumbing.reading.files import Text


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[" * 100_000, "nested"),
        ("[" * 65 + "]" * 65, "nested more than 64"),
        ('{"a":' * 900 + "1" + "}" * 900, "nested"),
        ("NaN", "NaN is not JSON"),
        ("[-Infinity]", "Infinity is not JSON"),
        ("1e999", "too large"),
        ("9223372036854775808", "beyond 64 bits"),
        ("9" * 5000, "beyond 64 bits"),
        ('"\\ud800"', "surrogate"),
        ("{", "Expecting"),
        (b"\xff", "UTF-8"),
    ],
)
def test_invalid_json_is_refused_with_its_fault(text: str | bytes, why: str) -> None:
    with pytest.raises(json_text.JsonError, match=why):
        json_text.loads(text)


def test_valid_json_is_read() -> None:
    assert json_text.loads("[" * 64 + "]" * 64) == json_text.loads("[" * 64 + "]" * 64)
    assert json_text.loads("[9223372036854775807, -9223372036854775807]")[0] == 2**63 - 1
    assert json_text.loads('"\\ud83d\\ude00"') == "\U0001f600"
    assert json_text.loads("0.1", exact=True) == Decimal("0.1")
    assert json_text.loads(b"\xef\xbb\xbf{}") == {}
    assert json_text.loads('{"sha256": "12345678901234567890123", "n": 1}')["n"] == 1
    with pytest.raises(json_text.JsonError, match="too long"):
        json_text.loads("0." + "1" * 1000, exact=True)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("x = " + "[" * 5000 + "]" * 5000, "nested"),
        ("x = " + "[" * 40 + "]" * 40, "nested more than 32"),
        (".".join("a" * 500) + " = 1", "nested more than 32"),
        ("x = 9223372036854775808", "beyond 64 bits"),
        ("x = [0x" + "f" * 5000 + "]", "beyond 64 bits"),
        ("x = " + "9" * 5000, "."),
        ("x = 2024-13-45", "."),
        ("x", "Expected"),
    ],
)
def test_invalid_toml_is_refused_with_its_fault(text: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(toml_text.TomlError, match=why):
        toml_text.loads(text)
    (tmp_path / "a.toml").write_text(text)
    with pytest.raises(InputError, match="not readable as TOML"):
        toml_text.read_table(tmp_path / "a.toml")


def test_word_is_parsed_as_toml_or_returned_unchanged() -> None:
    assert toml_text.value_of("32") == 32
    assert toml_text.value_of(" fcfs ") == "fcfs"
    assert toml_text.value_of("[1, 2]") == [1, 2]
    assert toml_text.value_of("1\nother = 2") == "1\nother = 2"
    assert toml_text.value_of("[" * 5000) == "[" * 5000


def test_csv_field_beyond_the_length_limit_is_refused() -> None:
    long = "x" * 200_000
    assert csv_rows.header_of(long) == []
    with pytest.raises(InputError, match="line 2: not CSV: field larger"):
        list(csv_rows.numbered_rows(Text("a.csv", ["a,b", f"1,{long}"])))
    with pytest.raises(InputError, match="twice; got 'a'"):
        list(csv_rows.records(Text("a.csv", ["a,a", "1,2"])))
    rows = list(csv_rows.records(Text("a.csv", ["a,b", '"1,5",', '"2\n', '3",4'])))
    assert rows == [(2, {"a": "1,5"}), (4, {"a": "2\n3", "b": "4"})]


def test_folders_devices_and_too_large_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="a folder, where a file is meant"):
        files.read_bytes(tmp_path)
    with pytest.raises(InputError, match="a device, where a file is meant"):
        files.read_bytes(Path(os.devnull))
    with pytest.raises(InputError, match="no name of a file"):
        files.read_bytes(Path("a\0b"))
    path = tmp_path / "a"
    path.write_bytes(b"12345")
    assert files.read_bytes(path, 5) == b"12345"
    with pytest.raises(InputError, match="too large; limit 4 bytes"):
        files.read_bytes(path, 4)


def test_reading_a_small_file_allocates_little_memory(tmp_path: Path) -> None:
    """Asked for up to gibibytes, `read` makes room for gibibytes first."""
    small = tmp_path / "small"
    small.write_bytes(b"two\n")
    tracemalloc.start()
    try:
        assert files.read_bytes(small) == b"two\n"
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_pipe_of_unknown_length_is_read_to_its_end_or_limit(tmp_path: Path) -> None:
    pipe, sent = tmp_path / "pipe", bytes(3 * files.CHUNK_BYTES)
    os.mkfifo(pipe)
    for most, read in ((len(sent), True), (len(sent) - 1, False)):
        writer = threading.Thread(target=_write, args=(pipe, sent))
        writer.start()
        if read:
            assert files.read_bytes(pipe, most) == sent
        else:
            with pytest.raises(InputError, match="too large"):
                files.read_bytes(pipe, most)
        writer.join()


@pytest.mark.parametrize("line", [b"\n", b"one\n", b"a" * 2000])
def test_a_small_gzip_is_refused_in_little_memory(tmp_path: Path, line: bytes) -> None:
    """A megabyte and a half of packed blank lines took 3.7 GB."""
    path = tmp_path / "a.gz"
    with gzip.open(path, "wb") as file:
        for _ in range(200):
            file.write(line * (1_000_000 // len(line)))
    assert path.stat().st_size < 1_000_000
    tracemalloc.start()
    try:
        with pytest.raises(InputError, match=r"too large|too many lines"):
            files.read_text(path)
        assert tracemalloc.get_traced_memory()[1] < 60_000_000
    finally:
        tracemalloc.stop()


def _write(pipe: Path, data: bytes) -> None:
    with contextlib.suppress(BrokenPipeError):
        pipe.write_bytes(data)


def test_gzip_is_unpacked_up_to_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(b"one\n") + gzip.compress(b"two\n"))
    assert files.read_text(path).lines == ["one", "two"]
    path.write_bytes(gzip.compress(bytes(50_000_000)))  # a thousand times its size
    with pytest.raises(InputError, match="too large"):
        files.read_bytes(path, 1_000_000)
    path.write_bytes(gzip.compress(bytes(80_000_000)))
    with pytest.raises(InputError, match=r"too large.*unpack it first"):
        files.read_bytes(path)
    path.write_bytes(gzip.compress(b"one\n")[:-3])
    with pytest.raises(InputError, match="ends too early"):
        files.read_bytes(path)
    path.write_bytes(b"\x1f\x8bgarbage")
    with pytest.raises(InputError, match="broken gzip"):
        files.read_bytes(path)
