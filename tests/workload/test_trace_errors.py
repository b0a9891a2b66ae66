"""What a user can get wrong in a file: each is one line with the file's name and row."""

import gzip
from pathlib import Path

import pytest

from kvsim.plumbing.errors import InputError
from kvsim.workload.traces.reader import read_trace

AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
GOOD = "2023-11-16 18:15:46.6805900,374,44\n"
MOON = '{{"timestamp": {}, "input_length": {}, "output_length": {}, "hash_ids": {}}}\n'
OK = MOON.format(0, 600, 5, [1, 2])
BURST = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"


def fault(tmp_path: Path, content: str | bytes, **options: object) -> str:
    path = tmp_path / "trace.txt"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(InputError) as caught:
        read_trace(path, **options)  # type: ignore[arg-type]
    message = str(caught.value)
    assert "trace.txt" in message
    assert "\n" not in message
    return message


@pytest.mark.parametrize(
    ("content", "line", "words"),
    [
        (AZURE + GOOD + "2023-11-16 18:15:50.99,39\n", 3, "cut short"),
        (AZURE + GOOD + "2023-11-16 18:15:50.99,39,1,2\n", 3, "too long"),
        (AZURE + GOOD + "\n" + GOOD, 3, "cut short"),
        (AZURE + GOOD + "2023-11-16 18:15:45,396,109\n", 3, "time goes back"),
        (AZURE + GOOD + "yesterday,396,109\n", 3, "not a clock time"),
        (AZURE + GOOD + "2023-02-30 18:15:45,396,109\n", 3, "not a clock time"),
        (AZURE + GOOD + "2023-11-16 24:15:45,396,109\n", 3, "not a clock time"),
        (AZURE + GOOD + "2023-11-16 18:15:50,396,0\n", 3, "without output"),
        (AZURE + GOOD + "2023-11-16 18:15:50,0,10\n", 3, "without prompt"),
        (AZURE + GOOD + "2023-11-16 18:15:50,-5,10\n", 3, "out of range"),
        (AZURE + GOOD + "2323-11-16 18:15:46,5,10\n", 3, "the time is out of range; got 9,467"),
        (AZURE + GOOD + "2023-11-16 18:15:50,1e99,10\n", 3, "not a whole number"),
        (AZURE + GOOD + "2023-11-16 18:15:50,3.5,10\n", 3, "not a whole number"),
        (AZURE + GOOD + "2023-11-16 18:15:50,NaN,10\n", 3, "not a whole number"),
        (AZURE + GOOD + "2023-11-16 18:15:50,,10\n", 3, "not a whole number"),
        (AZURE.encode() + GOOD.encode() + b"2023\xff", 3, "not UTF-8"),
        (AZURE + '"2023', 2, "not CSV"),
        (OK + OK[:40], 2, "cut short"),
        (OK + "\n" + OK, 2, "line is empty"),
        (OK + "[1]\n", 2, "not a JSON object"),
        (OK + MOON.format(-1, 600, 5, [1, 2]), 2, "negative"),
        (OK + MOON.format(5, 600, 0, [1, 2]), 2, "without output"),
        (OK + MOON.format('"soon"', 600, 5, [1, 2]), 2, "not a time"),
        (OK + MOON.format("NaN", 600, 5, [1, 2]), 2, "not a JSON object"),
        (OK + MOON.format("1e999", 600, 5, [1, 2]), 2, "not a time"),
        (OK + MOON.format("true", 600, 5, [1, 2]), 2, "not a time"),
        (OK + MOON.format(5, 600, 5, [1, 2, 3]), 2, "do not fit"),
        (OK + MOON.format(5, 600, 5, [1, -2]), 2, "hash id"),
        (OK + MOON.format(5, 600, 5, '"x"'), 2, "not a list"),
        (OK + '{"timestamp": 3, "output_length": 5}\n', 2, "input_length is missing"),
        (BURST + "5,GPT-4,472,0,472,API log\n", 2, "without output"),
        ("num_prefill_tokens,num_decode_tokens\n5,6\n7,zero\n", 3, "not a whole number"),
    ],
)
def test_error_for_a_broken_trace_row_names_the_line(
    content: str | bytes, line: int, words: str, tmp_path: Path
) -> None:
    kind = "mooncake" if str(content).startswith("{") else None
    message = fault(tmp_path, content, format=kind)
    assert f"line {line}" in message
    assert words in message


def test_prompt_may_end_with_a_partial_block_without_a_hash_id(tmp_path: Path) -> None:
    path = tmp_path / "trace.txt"
    path.write_text(OK + MOON.format(5, 600, 5, [1]))
    assert read_trace(path, format="mooncake").rows[1].hash_ids == (1,)


def test_empty_trace_file_is_refused(tmp_path: Path) -> None:
    assert "the file is empty" in fault(tmp_path, "")
    assert "the file is empty" in fault(tmp_path, "\n\n")
    assert "no requests" in fault(tmp_path, AZURE)


def test_trace_with_unknown_columns_is_refused(tmp_path: Path) -> None:
    message = fault(tmp_path, "TIMESTAMP,ContextTokens,Generated\n" + GOOD)
    assert "not a trace format" in message
    assert "azure" in message
    message = fault(tmp_path, "TIMESTAMP,ContextTokens,Generated\n" + GOOD, format="azure")
    assert "missing column GeneratedTokens" in message
    assert "not a trace format" in fault(tmp_path, "{broken")


def test_a_file_that_is_cut_short_names_the_line_of_the_cut(tmp_path: Path) -> None:
    message = fault(tmp_path, OK.splitlines()[0] + '\n{"timestamp": 10, "input_le')
    assert "line 2: not a JSON object (cut short?)" in message


def test_unknown_format_names_the_known(tmp_path: Path) -> None:
    path = tmp_path / "trace.txt"
    path.write_text(AZURE + GOOD)
    with pytest.raises(InputError, match="did you mean 'azure'"):
        read_trace(path, format="azur")


def test_missing_trace_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        read_trace(tmp_path / "nowhere.csv")
    with pytest.raises(InputError, match="cannot read it"):
        read_trace(tmp_path)


def test_block_size_for_a_format_without_hashes_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "trace.txt"
    path.write_text(AZURE + GOOD)
    with pytest.raises(InputError, match="no hash ids"):
        read_trace(path, hash_block_tokens=16)


def test_gzip_is_read_and_broken_gzip_is_named(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv.gz"
    path.write_bytes(gzip.compress((AZURE + GOOD).encode()))
    assert read_trace(path).rows[0].prompt_tokens == 374
    path.write_bytes(gzip.compress((AZURE + GOOD).encode())[:-12])
    with pytest.raises(InputError, match="broken gzip"):
        read_trace(path)


def test_failed_rows_can_be_dropped_and_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(BURST + "5,m,10,0,10,API log\n6,m,10,3,13,API log\n7,m,0,3,3,API log\n")
    trace = read_trace(path, drop_failed=True)
    assert [row.line for row in trace.rows] == [3]
    assert trace.notes == ("dropped 2 of 3 rows without prompt or output",)


def test_follower_of_a_dropped_row_follows_its_predecessor(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text(
        '{"session_id": "a", "timestamp": 7, "input_length": 6, "output_length": 0}\n'
        '{"session_id": "a", "delay": 5, "input_length": 7, "output_length": 1}\n'
        '{"session_id": "a", "delay": 2, "input_length": 8, "output_length": 0}\n'
        '{"session_id": "a", "delay": 3, "input_length": 9, "output_length": 1}\n'
    )
    first, second = read_trace(path, drop_failed=True).rows
    assert (first.arrival_ps, first.follows) == (7 * 10**9, None)
    assert (second.follows, second.delay_ps) == (first.id, 5 * 10**9)


def test_sorting_a_trace_notes_the_number_of_rows_moved(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(BURST + "5,m,1,1,2,l\n9,m,2,1,3,l\n6,m,3,1,4,l\n9,m,4,1,5,l\n")
    assert "line 4" in str(fault_of(path))
    trace = read_trace(path, sort=True)
    assert [row.prompt_tokens for row in trace.rows] == [1, 3, 2, 4]
    assert trace.notes == ("sorted: 1 of 4 rows came after a later one",)


def fault_of(path: Path) -> InputError:
    with pytest.raises(InputError) as caught:
        read_trace(path)
    return caught.value
