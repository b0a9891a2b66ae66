"""Every trace format: rows survive writing and reading, and foreign files are recognised."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvsim.plumbing.reading.files import read_text
from kvsim.plumbing.units import ceil_div
from kvsim.plumbing.writing import write_lines
from kvsim.workload.convert import convert
from kvsim.workload.traces import TRACE_FORMATS
from kvsim.workload.traces.format import DELAYS, HASHES, SESSIONS, HashedFormat
from kvsim.workload.traces.reader import detect, read_trace
from kvsim.workload.traces.record import Trace, TraceRow

NAMES = list(TRACE_FORMATS)
words = st.text("abc ,\"'é\\", min_size=1, max_size=6)


@st.composite
def traces(draw: st.DrawFn, name: str) -> Trace:
    """A trace as `name` could hold it, in that format's own terms."""
    cls = TRACE_FORMATS.get(name)
    block = draw(st.sampled_from([16, 64, 512])) if issubclass(cls, HashedFormat) else None
    hashed = block is not None and draw(st.booleans())
    rows: list[TraceRow] = []
    at = 0
    newest: dict[str, str] = {}
    for index in range(draw(st.integers(1, 12))):
        if index:
            at += draw(st.one_of(st.just(0), st.integers(0, 10**14)))
        prompt = draw(st.integers(1, 2000))
        row = TraceRow(0, at, prompt, draw(st.integers(1, 500)))
        if hashed:
            assert block is not None
            full = prompt // block if name == "agent-sessions" else ceil_div(prompt, block)
            ids = draw(st.lists(st.integers(0, 1 << 40), min_size=full, max_size=full))
            row = row._replace(hash_ids=tuple(ids))
        rows.append(_in_terms_of(name, row, index, draw, newest))
    if name == "vidur" and draw(st.booleans()):
        rows = [row._replace(arrival_ps=None) for row in rows]
    if name == "agent-sessions":
        rows = sorted(rows, key=lambda row: str(row.session))
        starts = [row for row in rows if row.follows is None]
        times = iter(sorted(row.arrival_ps or 0 for row in starts))
        rows = [row if row.follows else row._replace(arrival_ps=next(times)) for row in rows]
        rows = [row._replace(labels=()) for row in rows]
    origin = draw(st.integers(0, 2**31)) * 10**12 + 680_590_000_000 if name == "azure" else None
    return Trace("t", name, rows, block if hashed else None, origin)


def _in_terms_of(
    name: str, row: TraceRow, index: int, draw: st.DrawFn, newest: dict[str, str]
) -> TraceRow:
    if name == "burstgpt":
        session = draw(st.sampled_from(["s1", "s2"]))
        return row._replace(session=session, labels=(draw(words), draw(words), "3"))
    if name == "splitwise":
        return row._replace(id=str(index), labels=("2", "0"))
    if name == "qwen-bailian":
        return row._replace(id=str(index), session=str(index), labels=("-1", draw(words), "1"))
    if name in ("aiperf", "agent-sessions"):
        session = draw(st.sampled_from(["x", "y"]))
        before = newest.get(session)
        if name == "aiperf":
            own = f"r{index + 1}"
        else:
            own = f"{session}/{1 if before is None else int(before.split('/')[1]) + 1}"
        newest[session] = own
        row = row._replace(id=own, session=session)
        if before is not None and (name == "agent-sessions" or draw(st.booleans())):
            delay = draw(st.integers(0, 10**14))
            return row._replace(arrival_ps=None, follows=before, delay_ps=delay)
    return row


def bare(rows: list[TraceRow]) -> list[TraceRow]:
    return [row._replace(line=0) for row in rows]


@pytest.mark.parametrize("name", NAMES)
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_trace_formats_read_their_own_output(
    name: str, data: st.DataObject, tmp_path: Path
) -> None:
    trace = data.draw(traces(name))
    lines, lost = convert(trace, name)
    assert lost == []
    write_lines(tmp_path / "trace", lines)
    again = read_trace(tmp_path / "trace", format=name, hash_block_tokens=trace.hash_block_tokens)
    assert bare(again.rows) == bare(trace.rows)
    assert again.hash_block_tokens == trace.hash_block_tokens
    assert again.origin_ps == trace.origin_ps or trace.origin_ps is None
    again_lines, _ = convert(again, name)
    assert again_lines == lines


@pytest.mark.parametrize("name", NAMES)
@settings(
    max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_lengths_times_and_hashes_survive_conversion(
    name: str, data: st.DataObject, tmp_path: Path
) -> None:
    source = data.draw(traces("mooncake"))
    cls = TRACE_FORMATS.get(name)
    lines, lost = convert(source, name)
    write_lines(tmp_path / "trace", lines)
    own = source.hash_block_tokens if name == source.format else None
    again = read_trace(tmp_path / "trace", format=name, hash_block_tokens=own)
    assert [(r.prompt_tokens, r.output_tokens) for r in again.rows] == [
        (r.prompt_tokens, r.output_tokens) for r in source.rows
    ]
    assert [r.arrival_ps for r in again.rows] == [r.arrival_ps for r in source.rows]
    hashed = source.hash_block_tokens is not None
    assert ("hash ids" in lost) == (hashed and HASHES not in cls.carries)


SAMPLES = {
    "azure": "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
    "2023-11-16 18:15:46.6805900,374,44\r\n2023-11-16 18:15:50.9951690,396,109",
    "burstgpt": "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    "5,ChatGPT,472,18,490,Conversation log\n45,GPT-4,1087,230,1317,API log\n",
    "splitwise": "request_id,request_type,application_id,arrival_timestamp,batch_size,"
    "prompt_size,token_size\n0,2,0,0.25,1,100,10\n",
    "vidur": "arrived_at,num_prefill_tokens,num_decode_tokens\n0.5,591,140\n",
    "qwen-bailian": '{"chat_id": 159, "parent_chat_id": 55, "timestamp": 61.114, '
    '"input_length": 33, "output_length": 132, "type": "text", "turn": 2, '
    '"hash_ids": [1089, 1090, 6326]}\n',
    "aiperf": '{"session_id": "a", "timestamp": 0, "input_length": 600, "output_length": 40, '
    '"hash_ids": [1, 2]}\n{"session_id": "a", "delay": 500.5, "input_length": 700, '
    '"output_length": 4, "hash_ids": [1, 3]}\n',
    "mooncake": '{"timestamp": 27482, "input_length": 6955, "output_length": 52, '
    '"hash_ids": [46, 47, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 2353, 2354]}\n',
    "timed-trace": '{"timestamp": 265.091, "input_length": 40, "output_length": 5, '
    '"hash_ids": [0, 1, 2]}\n',
    "agent-sessions": '{"id": "f6", "block_size": 64, "requests": [{"t": 0.0, "type": "s", '
    '"in": 130, "out": 86, "hash_ids": [1, 2]}, {"t": 9.5, "in": 200, "out": 7, '
    '"hash_ids": [1, 2, 3], "think_time": 2.25}]}\n',
}


@pytest.mark.parametrize("name", NAMES)
def test_trace_format_is_detected_from_the_content(name: str, tmp_path: Path) -> None:
    """As it was published or, of a format without a sample above, as kvsim writes it."""
    path = tmp_path / "trace"
    trace = Trace("t", name, [TraceRow(0, 0, 100, 10), TraceRow(0, 10**12, 7, 3)])
    path.write_text(SAMPLES.get(name) or "\n".join(convert(trace, name)[0]))
    assert detect(read_text(path)) == name
    assert read_trace(path).format == name


def rows_of(name: str, tmp_path: Path, **options: Any) -> list[TraceRow]:
    path = tmp_path / "trace"
    path.write_text(SAMPLES[name], newline="")
    return read_trace(path, **options).rows


def test_azure_clock_times_are_read_without_rounding(tmp_path: Path) -> None:
    first, second = rows_of("azure", tmp_path)
    assert (first.line, first.arrival_ps, first.prompt_tokens, first.output_tokens) == (
        2,
        0,
        374,
        44,
    )
    assert second.arrival_ps == 4_314_579_000_000


def test_azure_2024_clock_offsets_are_read(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    path.write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2024-05-10 23:59:59.900000+00:00,1,2\n2024-05-11 01:00:00+01:00,3,4\n"
    )
    assert [row.arrival_ps for row in read_trace(path).rows] == [0, 10**11]


def test_mooncake_times_and_blocks_are_read(tmp_path: Path) -> None:
    (row,) = rows_of("mooncake", tmp_path)
    assert row.arrival_ps == 27_482 * 10**9
    assert row.hash_ids is not None
    assert row.hash_ids[-2:] == (2353, 2354)


def test_timed_trace_keeps_every_digit(tmp_path: Path) -> None:
    (row,) = rows_of("timed-trace", tmp_path)
    assert row.arrival_ps == 265_091_000_000


def test_bailian_sessions_are_named_by_their_root(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    line = '{{"chat_id": {}, "parent_chat_id": {}, "timestamp": {}, "input_length": 3, ' \
        '"output_length": 1, "type": "text", "turn": {}, "hash_ids": [7]}}'  # fmt: skip
    rows = [(1, -1, 0, 1), (2, 1, 1, 2), (9, -1, 1, 1), (3, 2, 2.5, 3)]
    path.write_text("\n".join(line.format(*row) for row in rows))
    assert [row.session for row in read_trace(path).rows] == ["1", "1", "9", "1"]


def test_aiperf_delays_follow_the_session(tmp_path: Path) -> None:
    first, second = rows_of("aiperf", tmp_path)
    assert (second.arrival_ps, second.follows, second.delay_ps) == (None, first.id, 500_500_000_000)


def test_agent_sessions_chain_by_think_time_or_clock(tmp_path: Path) -> None:
    first, second = rows_of("agent-sessions", tmp_path)
    assert (first.arrival_ps, second.follows, second.delay_ps) == (0, first.id, 2_250_000_000_000)
    path = tmp_path / "trace"
    path.write_text(
        '{"id": "a", "requests": [\n{"t": 1, "in": 5, "out": 1, "api_time": 2},\n'
        '{"type": "subagent", "t": 4, "requests": [{"t": 4, "in": 7, "out": 1}]},\n'
        '{"t": 9.5, "in": 6, "out": 1}]}\n'
    )
    rows = read_trace(path).rows
    assert [(r.id, r.follows, r.delay_ps) for r in rows] == [
        ("a/1", None, 0),
        ("a/2", "a/1", 10**12),
        ("a/3", "a/2", 5_500_000_000_000),
    ]


def test_agent_session_hash_ids_are_local_to_the_session(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    session = '{{"id": "{}", {}"requests": [{{"t": 0, "in": 64, "out": 1, "hash_ids": [3]}}]}}\n'
    path.write_text(session.format("a", "") + session.format("b", ""))
    local = [row.hash_ids for row in read_trace(path).rows]
    scope = '"hash_id_scope": "global", '
    path.write_text(session.format("a", scope) + session.format("b", scope))
    shared = [row.hash_ids for row in read_trace(path).rows]
    assert local[0] != local[1]
    assert shared == [(3,), (3,)]


def test_burstgpt_columns_are_found_by_name(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    path.write_text(
        "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,"
        "Total tokens,Log Type\n19440110.0,1722,43,GPT-4,906,446,1352,Conversation log\n"
    )
    (row,) = read_trace(path).rows
    assert (row.prompt_tokens, row.output_tokens, row.session) == (906, 446, "1722")
    assert row.arrival_ps == 19_440_110 * 10**12


def test_trace_formats_write_the_columns_they_declare() -> None:
    row = TraceRow(1, 0, 600, 5, (1, 2), "r1", "s")
    later = TraceRow(2, None, 700, 5, (1, 3), "r2", "s", "r1", 10**9)
    trace = Trace("t", "aiperf", [row, later], 512)
    for name in NAMES:
        cls = TRACE_FORMATS.get(name)
        if DELAYS in cls.carries:
            assert convert(trace, name)[1] == []
        timed = replace(trace, rows=[row])
        text = "\n".join(convert(timed, name)[0])
        assert (HASHES in cls.carries) == ("hash_ids" in text)
        lost = convert(timed, name)[1]
        assert (SESSIONS in lost) == (SESSIONS not in cls.carries)
