"""Workloads of prompts alone, images and adapters; the same in traces."""

from pathlib import Path
from typing import Any

import pytest

from kvsim.plumbing.errors import InputError
from kvsim.request import Request, TokenRuns
from kvsim.token_runs import ADAPTER_STRIDE
from kvsim.workload import WORKLOADS
from kvsim.workload.convert import convert
from kvsim.workload.traces.reader import read_trace

HEAD = '{"timestamp": 0, "input_length": 40, "output_length": '
RECORDS = [
    HEAD + '3, "hash_ids": [1], "items": [[4, 10, "cat"], [20, 20, "dog"]], "adapter": "b"}',
    HEAD + '0, "hash_ids": [1], "items": [[2, 10, "cat"]]}',
    HEAD + '2, "hash_ids": [1], "adapter": "a"}',
]


def made(**table: Any) -> tuple[Request, ...]:
    """The requests of a workload."""
    drawn = {
        "kind": "synthetic",
        "num_requests": 400,
        "arrivals": "at-once",
        "prompt": {"kind": "uniform", "min_tokens": 10, "max_tokens": 90},
        "output": {"kind": "fixed", "tokens": 7},
    }
    options = WORKLOADS.parse(drawn | table, "workload")
    return options.generate(3, base=Path(), max_model_len=None).requests


def test_prompts_without_output_equal_the_prompts_with_output() -> None:
    with_output = made()
    alone = made(output="none", max_tokens="exact")
    assert [each.prompt_tokens for each in alone] == [each.prompt_tokens for each in with_output]
    assert {(each.output_tokens, each.max_tokens) for each in alone} == {(0, None)}
    assert {each.final_tokens - each.prompt_tokens for each in alone} == {0}


def test_empty_prompts_are_refused() -> None:
    with pytest.raises(InputError, match=r"workload.prompt.*only outputs"):
        made(prompt="none")


def test_items_are_placed_between_prefix_and_text() -> None:
    pool = {
        "tokens": {"kind": "uniform", "min_tokens": 5, "max_tokens": 30},
        "count": 20,
        "share": 0.5,
        "per_prompt": {"kind": "uniform", "min_tokens": 1, "max_tokens": 3},
    }
    prefix = {"tokens": {"kind": "fixed", "tokens": 8}}
    requests = made(items=[pool], prefixes=[prefix])
    lengths: dict[int, int] = {}
    numbers = []
    for request in requests:
        assert request.prompt_runs is not None
        assert sum(length for _, length in request.prompt_runs) == request.prompt_tokens
        place = 8
        numbers.append(len(request.items))
        for run, item in zip(request.prompt_runs[1:], request.items, strict=False):
            assert run == (item.content, item.tokens)
            assert item.start_tokens == place
            assert lengths.setdefault(item.content, item.tokens) == item.tokens
            place = item.end_tokens
    assert len(lengths) == 20
    assert sum(number > 0 for number in numbers) == pytest.approx(200, abs=40)
    assert {1, 2, 3} < set(numbers)


def test_items_differ_unless_a_count_limits_them() -> None:
    pool: dict[str, Any] = {
        "tokens": {"kind": "uniform", "min_tokens": 5, "max_tokens": 30},
        "per_prompt": {"kind": "fixed", "tokens": 2},
    }
    contents = [item.content for request in made(items=[pool]) for item in request.items]
    assert len(contents) == len(set(contents)) == 2 * 400
    one = {item.content for request in made(items=[{**pool, "count": 1}]) for item in request.items}
    assert len(one) == 1
    with pytest.raises(InputError, match="zipf changes nothing without count"):
        made(items=[{**pool, "zipf": 1.0}])


def test_adapters_follow_zipf_and_share_no_tokens() -> None:
    prefix = {"tokens": {"kind": "fixed", "tokens": 8}}
    requests = made(adapters={"count": 3, "share": 0.8, "zipf": 1.0}, prefixes=[prefix])
    counts = {k: sum(r.adapter == k for r in requests) for k in (None, 0, 1, 2)}
    assert counts[None] == pytest.approx(80, abs=30)
    assert counts[0] > counts[1] > counts[2] > 0
    starts = {(r.adapter, r.prompt_runs[0][0]) for r in requests if r.prompt_runs is not None}
    assert len(starts) == 4  # one prefix, as each adapter computes it
    assert {start // ADAPTER_STRIDE for _, start in starts} == {0, 1, 2, 3}


def test_all_turns_of_a_conversation_use_one_adapter() -> None:
    count = {"kind": "fixed", "tokens": 4}
    table = {
        "kind": "sessions",
        "num_sessions": 40,
        "arrivals": "at-once",
        **dict.fromkeys(["turns", "prompt", "output"], count),
        "think": {"kind": "fixed", "seconds": 1},
        "adapters": {"count": 5},
    }
    options = WORKLOADS.parse(table, "workload")
    requests = options.generate(0, base=Path(), max_model_len=None).requests
    by_session: dict[str | None, set[int | None]] = {}
    for request in requests:
        by_session.setdefault(request.session, set()).add(request.adapter)
    assert {len(found) for found in by_session.values()} == {1}
    assert len({min(found, key=str) for found in by_session.values()}) == 5


def test_images_of_a_conversation_stay_in_its_later_prompts() -> None:
    four = {"kind": "fixed", "tokens": 4}
    table = {
        "kind": "sessions",
        "num_sessions": 30,
        "arrivals": "at-once",
        **dict.fromkeys(["turns", "prompt", "output"], four),
        "think": {"kind": "fixed", "seconds": 1},
        "prefixes": [{"tokens": {"kind": "fixed", "tokens": 8}}],
        "items": [{"tokens": {"kind": "fixed", "tokens": 5}, "count": 9, "share": 0.5}],
    }
    options = WORKLOADS.parse(table, "workload")
    requests = options.generate(0, base=Path(), max_model_len=None).requests
    with_items = 0
    before: dict[str | None, Request] = {}
    for request in requests:
        tokens = list(_tokens(request.prompt_runs))
        assert len(tokens) == request.prompt_tokens
        for item in request.items:
            assert tokens[item.start_tokens] == item.content
            assert tokens[item.end_tokens - 1] == item.content + 4
        earlier = before.get(request.session)
        if earlier is not None and earlier.output_start is not None:
            said = _tokens(earlier.prompt_runs)
            said += range(earlier.output_start, earlier.output_start + 4)
            assert tokens[: len(said)] == said
            assert request.items[: len(earlier.items)] == earlier.items
            with_items += len(request.items) > len(earlier.items)
        before[request.session] = request
    assert with_items == pytest.approx(45, abs=20)  # half of the three later turns of each


def _tokens(runs: TokenRuns | None) -> list[int]:
    return [start + at for start, length in runs or () for at in range(length)]


def test_trace_items_and_adapters_survive_writing(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text("\n".join(RECORDS) + "\n")
    table = {"kind": "trace", "path": str(path), "prompts_alone": True}
    first, second, third = (
        WORKLOADS.parse(table, "workload").generate(0, base=tmp_path, max_model_len=None).requests
    )
    assert [(i.start_tokens, i.tokens) for i in first.items] == [(4, 10), (20, 20)]
    assert first.items[0].content == second.items[0].content != first.items[1].content
    assert (first.adapter, second.adapter, third.adapter) == (0, None, 1)
    assert (first.output_tokens, second.output_tokens) == (3, 0)
    assert second.prompt_runs is not None
    assert second.prompt_runs[1] == (second.items[0].content, 10)
    trace = read_trace(path, prompts_alone=True)
    lines, lost = convert(trace, "mooncake")
    assert not lost
    (tmp_path / "again.jsonl").write_text("\n".join(lines) + "\n")
    again = read_trace(tmp_path / "again.jsonl", prompts_alone=True)
    assert [row._replace(line=0) for row in again.rows] == [
        row._replace(line=0) for row in trace.rows
    ]
    _, lost = convert(trace, "azure")
    assert {"items of prompts", "adapters"} <= set(lost)


@pytest.mark.parametrize(
    ("field", "named"),
    [
        ('"items": [[4, 10]]', "not \\[tokens before, tokens, name\\]"),
        ('"items": [[4, 10, "a"], [9, 3, "b"]]', "does not follow"),
        ('"items": [[35, 10, "a"]]', "behind the prompt"),
        ('"adapter": 3', "not a name"),
    ],
)
def test_invalid_trace_field_is_named_with_its_line(tmp_path: Path, field: str, named: str) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text(HEAD + "3, " + field + "}\n")
    with pytest.raises(InputError, match=named):
        read_trace(path)


def test_error_for_a_row_without_output_names_both_remedies(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text("\n".join(RECORDS) + "\n")
    with pytest.raises(InputError, match=r"drop_failed .* or prompts_alone"):
        read_trace(path)


@pytest.mark.parametrize("count", [None, 500])
def test_more_items_than_a_stream_can_have_are_refused(count: int | None) -> None:
    pool = {
        "tokens": {"kind": "fixed", "tokens": 5},
        "per_prompt": {"kind": "uniform", "min_tokens": 1, "max_tokens": 10**18},
    }
    with pytest.raises(InputError, match=r"items.per_prompt.*more items.*limit 10,000,000"):
        made(num_requests=20, items=[pool if count is None else pool | {"count": count}])
