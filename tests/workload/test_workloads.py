"""Whole workloads: the same bits for the same seed, and content that is shared where it should."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kvsim.plumbing.errors import InputError
from kvsim.request import Request, Stream
from kvsim.workload import WORKLOADS

POISSON = {"kind": "poisson", "rate_per_s": 5.0}
FIXED = {"kind": "fixed", "tokens": 100}
MOON = (
    '{"timestamp": 4000, "input_length": 1300, "output_length": 9, "hash_ids": [5, 6, 7]}\n'
    '{"timestamp": 4000, "input_length": 1400, "output_length": 9, "hash_ids": [5, 6, 9]}\n'
    '{"timestamp": 7000, "input_length": 20, "output_length": 3000, "hash_ids": [10]}\n'
    '{"timestamp": 8500, "input_length": 500, "output_length": 2, "hash_ids": [5]}\n'
)
EXAMPLES: dict[str, dict[str, Any]] = {
    "synthetic": {
        "num_requests": 400,
        "arrivals": POISSON,
        "prompt": {"kind": "grid", "name": "sharegpt-opt.prompt_tokens"},
        "output": {"kind": "grid", "name": "sharegpt-opt.output_tokens"},
        "prefixes": [{"tokens": FIXED, "count": 3, "share": 0.5}],
        "redraw_over": "max_model_len",
        "priorities": [{"priority": 0, "share": 3}, {"priority": 5, "share": 1}],
        "max_tokens": "next-pow2",
        "n": 2,
    },
    "sessions": {
        "num_sessions": 60,
        "arrivals": POISSON,
        "turns": {"kind": "geometric", "mean": 5.0},
        "prompt": {"kind": "uniform", "max_tokens": 200},
        "output": {"kind": "uniform", "max_tokens": 200},
        "think": {"kind": "exponential", "mean_s": 10.0},
        "prefixes": [{"tokens": FIXED, "count": 2}, {"tokens": FIXED, "count": 9, "zipf": 1.0}],
        "max_context": "max_model_len",
    },
    "trace": {"path": "trace.jsonl", "format": "mooncake"},
    "uncached": {
        "of": {
            "kind": "sessions",
            "num_sessions": 6,
            "arrivals": POISSON,
            "turns": {"kind": "geometric", "mean": 3.0},
            "prompt": {"kind": "uniform", "max_tokens": 50},
            "output": {"kind": "uniform", "max_tokens": 20},
            "think": {"kind": "exponential", "mean_s": 10.0},
        }
    },
}
EXAMPLES["beams"] = {**EXAMPLES["uncached"], "beam_width": 3}


@pytest.fixture
def folder(base: Path) -> Path:
    (base / "trace.jsonl").write_text(MOON)
    return base


def stream(table: dict[str, Any], folder: Path, seed: int = 1) -> Stream:
    options = WORKLOADS.parse(table, "workload")
    return options.generate(seed, base=folder, max_model_len=2048)


def example(kind: str, **changes: Any) -> dict[str, Any]:
    return {"kind": kind, **EXAMPLES[kind], **changes}


def tokens_of(request: Request) -> list[int]:
    assert request.prompt_runs is not None
    return [start + i for start, length in request.prompt_runs for i in range(length)]


@pytest.mark.parametrize("kind", list(WORKLOADS))
def test_workloads_obey_their_options(kind: str, folder: Path) -> None:
    made = stream(example(kind), folder)
    assert made == stream(example(kind), folder)
    assert made.requests
    seen: dict[str, Request] = {}
    groups: set[str | None] = set()
    arrival_ps = 0
    for request in made.requests:
        assert request.id not in seen
        assert request.prompt_tokens >= 1
        assert request.output_tokens >= 1
        assert request.arrival_ps >= arrival_ps
        arrival_ps = request.arrival_ps
        assert request.after is None or request.after in {*seen, *groups}
        groups.add(request.group)
        assert request.think_ps >= 0
        if request.prompt_runs is not None:
            assert sum(length for _, length in request.prompt_runs) == request.prompt_tokens
            assert all(length >= 1 for _, length in request.prompt_runs)
        seen[request.id] = request


@pytest.mark.parametrize("kind", list(WORKLOADS))
def test_workload_options_written_and_read_again_give_equal_requests(
    kind: str, folder: Path
) -> None:
    options = WORKLOADS.parse(example(kind), "workload")
    table = {"kind": kind, **options.model_dump(exclude_none=True)}
    assert WORKLOADS.parse(table, "workload") == options
    assert stream(table, folder) == stream(example(kind), folder)


@pytest.mark.parametrize("kind", ["synthetic", "sessions"])
def test_another_seed_gives_other_requests(kind: str, folder: Path) -> None:
    one, other = stream(example(kind), folder), stream(example(kind), folder, seed=2)
    assert one.requests != other.requests


def test_change_of_lengths_leaves_arrival_times_equal(folder: Path) -> None:
    one = stream(example("synthetic"), folder)
    other = stream(example("synthetic", output=FIXED), folder)
    assert [r.arrival_ps for r in one.requests] == [r.arrival_ps for r in other.requests]
    assert [r.priority for r in one.requests] == [r.priority for r in other.requests]


def test_priorities_and_prefixes_are_drawn_by_share(folder: Path) -> None:
    requests = stream(example("synthetic", num_requests=8000), folder).requests
    assert np.mean([r.priority == 5 for r in requests]) == pytest.approx(0.25, abs=0.02)
    shared = [r.prompt_runs[0] for r in requests if r.prompt_runs is not None]
    assert len(shared) / 8000 == pytest.approx(0.5, abs=0.02)
    assert len(set(shared)) == 3
    assert all(r.n == 2 and r.max_tokens is not None for r in requests)


def test_prefixes_add_to_prompt_lengths_and_private_ids_are_disjoint(folder: Path) -> None:
    table = example("synthetic", num_requests=50, prompt={"kind": "fixed", "tokens": 7})
    requests = stream(table, folder).requests
    taken: set[int] = set()
    for request in requests:
        assert request.prompt_tokens == (7 if request.prompt_runs is None else 107)
        if request.prompt_runs is not None:
            private = set(tokens_of(request)[100:])
            assert not private & taken
            taken |= private


def test_lengths_over_the_limit_are_drawn_again_or_clipped(folder: Path) -> None:
    for way in ("redraw_over", "clip_to"):
        table = example("synthetic", num_requests=3000)
        del table["redraw_over"]
        made = stream({**table, way: 1024}, folder)
        assert all(r.prompt_tokens + r.output_tokens <= 1024 for r in made.requests)
        assert "1,024" in made.notes[0]
        assert "0 of" not in made.notes[0].replace("3,000 of", "")
        short = stream({**table, "prompt": FIXED, "output": FIXED, way: 10**6}, folder)
        assert not any("clipped" in note or "drawn" in note for note in short.notes)
    with pytest.raises(InputError, match="no lengths within the limit"):
        stream(example("synthetic", redraw_over=50, prompt=FIXED), folder)
    with pytest.raises(InputError, match="exclude each other"):
        stream(example("synthetic", clip_to=50), folder)


def test_clipped_prompt_still_begins_with_its_prefix(folder: Path) -> None:
    table = example("synthetic", prefixes=[{"tokens": FIXED}])
    del table["redraw_over"]
    for request in stream({**table, "clip_to": 60}, folder).requests:
        assert request.prompt_runs == ((0, 59),)
        assert request.output_tokens == 1


def test_fixed_max_tokens_cuts_longer_outputs(folder: Path) -> None:
    made = stream(example("synthetic", max_tokens={"kind": "fixed", "tokens": 50}), folder)
    assert max(r.output_tokens for r in made.requests) == 50
    assert {r.max_tokens for r in made.requests} == {50}
    assert any("max_tokens ended" in note for note in made.notes)


def test_prompt_and_output_have_the_requested_rank_correlation(folder: Path) -> None:
    table = example("synthetic", num_requests=20_000, correlation=0.5)
    del table["redraw_over"], table["prefixes"]
    made = stream(table, folder).requests
    pairs = np.array([(r.prompt_tokens, r.output_tokens) for r in made], dtype=float)
    ranks = pairs.argsort(0).argsort(0)
    measured = float(np.asarray(np.corrcoef(ranks.T))[0, 1])
    assert measured == pytest.approx(6 / np.pi * np.arcsin(0.25), abs=0.02)
    plain = stream({**table, "correlation": 0.0}, folder).requests
    assert sorted(r.prompt_tokens for r in plain) == sorted(r.prompt_tokens for r in made)


def test_recorded_length_pairs_are_drawn_as_pairs(folder: Path) -> None:
    table = {
        "kind": "synthetic",
        "num_requests": 100,
        "arrivals": POISSON,
        "lengths": {"path": "trace.jsonl", "format": "mooncake"},
    }
    pairs = {(1300, 9), (1400, 9), (20, 3000), (500, 2)}
    assert {(r.prompt_tokens, r.output_tokens) for r in stream(table, folder).requests} == pairs
    table["lengths"]["order"] = "file"  # type: ignore[index]
    first = [(r.prompt_tokens, r.output_tokens) for r in stream(table, folder).requests[:5]]
    assert first == [(1300, 9), (1400, 9), (20, 3000), (500, 2), (1300, 9)]


def test_conversation_prompts_contain_all_earlier_turns(folder: Path) -> None:
    made = stream(example("sessions"), folder)
    said: dict[str, list[int]] = {}
    ended: dict[str, str] = {}
    turns: dict[str, int] = {}
    for request in made.requests:
        assert request.session is not None
        assert request.output_start is not None
        history, prompt = said.get(request.session, []), tokens_of(request)
        assert prompt[: len(history)] == history
        assert len(prompt) > len(history)
        assert request.after == ended.get(request.session)
        assert request.prompt_tokens + request.output_tokens <= 2048
        answer = range(request.output_start, request.output_start + request.output_tokens)
        said[request.session] = [*prompt, *answer]
        ended[request.session] = request.id
        turns[request.session] = turns.get(request.session, 0) + 1
    assert max(turns.values()) > 3
    systems = {tuple(tokens[:100]) for tokens in said.values()}
    assert len(systems) == 2
    own = [set(tokens[200:]) for tokens in said.values()]
    assert sum(map(len, own)) == len(set.union(*own))


def test_closed_loop_conversation_starts_after_the_previous_one_ends(folder: Path) -> None:
    loop = {"kind": "closed-loop", "num_users": 2, "think": {"kind": "fixed", "seconds": 3}}
    made = stream(example("sessions", arrivals=loop, num_sessions=6), folder).requests
    last: dict[str, str] = {}
    for request in made:
        session = int(str(request.session)[1:])
        if request.id.endswith(".0") and session >= 2:
            assert request.after == last[f"s{session - 2}"]
            assert request.think_ps == 3 * 10**12
        last[str(request.session)] = request.id


def test_trace_hash_ids_become_runs_of_token_ids(folder: Path) -> None:
    first, second, third, fourth = stream(example("trace"), folder).requests
    assert first.prompt_runs == ((5 * 512, 1300),)
    assert second.prompt_runs == ((5 * 512, 1024), (9 * 512, 376))
    assert fourth.prompt_runs == ((5 * 512, 500),)
    assert [r.arrival_ps for r in (first, second, third, fourth)] == [
        0, 0, 3 * 10**12, 45 * 10**11,
    ]  # fmt: skip


def test_limits_report_the_requests_they_changed(folder: Path) -> None:
    def cut(**options: Any) -> tuple[list[int], str]:
        made = stream(example("trace", **options), folder)
        return [r.prompt_tokens for r in made.requests], made.notes[0]

    assert cut(limit=3) == ([1300, 1400, 20], "first 3 rows: left out 1 of 4")
    assert cut(start_s=3, end_s=4.5) == (
        [20], "window 3 s to 4.5 s: left out 3 of 4 rows",
    )  # fmt: skip
    assert cut(clip_to=1350) == (
        [1300, 1349, 20, 500], "clipped 2 of 4 requests to 1,350 tokens",
    )  # fmt: skip
    made = stream(example("trace", clip_to=10**6), folder)
    assert not any("clipped" in note for note in made.notes)  # "clipped 0 of 4" is no news
    assert cut(drop_over="max_model_len") == (
        [1300, 1400, 500], "dropped 1 of 4 requests over 2,048 tokens",
    )  # fmt: skip
    assert cut(rate_scale=2)[1] == "rate times 2: 4 of 4 arrival times rescaled"


def test_rates_are_rescaled_exactly(folder: Path) -> None:
    made = stream(example("trace", rate_scale=3.0), folder).requests
    assert [r.arrival_ps for r in made] == [0, 0, 10**12, 15 * 10**11]
    made = stream(example("trace", rate_per_s=2.0), folder).requests
    assert made[-1].arrival_ps == 2 * 10**12


def test_clipping_cuts_the_runs_too(folder: Path) -> None:
    made = stream(example("trace", clip_to=1100), folder).requests
    assert made[1].prompt_runs == ((5 * 512, 1024), (9 * 512, 75))
    assert (made[1].prompt_tokens, made[1].output_tokens) == (1099, 1)


def test_trace_of_lengths_only_uses_the_arrival_process(folder: Path) -> None:
    (folder / "lengths_only.csv").write_text("num_prefill_tokens,num_decode_tokens\n3,4\n5,6\n")
    table = {"kind": "trace", "path": "lengths_only.csv"}
    with pytest.raises(InputError, match=r"lengths and no times.*workload.arrivals"):
        stream(table, folder)
    made = stream({**table, "arrivals": {"kind": "constant", "rate_per_s": 1}}, folder)
    assert [(r.arrival_ps, r.prompt_tokens) for r in made.requests] == [(0, 3), (10**12, 5)]
    assert made.notes == ()


def test_arrivals_replace_a_traces_own(folder: Path) -> None:
    loop = {"kind": "closed-loop", "num_users": 1, "think": {"kind": "fixed", "seconds": 1}}
    made = stream(example("trace", arrivals=loop), folder)
    assert made.notes == ("4 of 4 arrival times replaced",)
    assert [r.after for r in made.requests] == [None, "line1", "line2", "line3"]
    with pytest.raises(InputError, match="exclude each other"):
        stream(example("trace", arrivals=loop, rate_scale=2), folder)


def test_agent_sessions_in_a_closed_loop_run_one_after_the_other(folder: Path) -> None:
    session = '{{"id": "{}", "requests": [{{"t": 0, "in": 5, "out": 1}}, ' \
        '{{"t": 3, "in": 9, "out": 1}}]}}\n'  # fmt: skip
    (folder / "agents.jsonl").write_text("".join(session.format(name) for name in "abc"))
    loop = {"kind": "closed-loop", "num_users": 1, "think": {"kind": "fixed", "seconds": 1}}
    made = stream({"kind": "trace", "path": "agents.jsonl", "arrivals": loop}, folder).requests
    assert [(r.id, r.after, r.think_ps // 10**12) for r in made] == [
        ("a/1", None, 0), ("a/2", "a/1", 3), ("b/1", "a/2", 1),
        ("b/2", "b/1", 3), ("c/1", "b/2", 1), ("c/2", "c/1", 3),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"kind": "trace"}, "either a path or a name"),
        ({"kind": "trace", "path": "nowhere.csv"}, "cannot read it"),
        ({"kind": "trace", "name": "azure"}, "no such trace in the catalogue"),
        ({"kind": "trace", "path": "trace.jsonl", "limit": 0}, "workload.limit"),
        ({"kind": "trace", "path": "trace.jsonl", "clip_to": 1}, "at least 2 tokens"),
        ({"kind": "trace", "path": "trace.jsonl", "start_s": 100}, "no row is in the window"),
        ({"kind": "trace", "path": "trace.jsonl", "start_s": 4, "end_s": 3}, "window is empty"),
        ({"kind": "trace", "path": "trace.jsonl", "drop_over": 2}, "no request is short enough"),
        ({"kind": "trace", "path": "trace.jsonl", "loop": 2}, "unknown key"),
        ({"kind": "synthetic", "num_requests": 2, "arrivals": POISSON}, "prompt and output"),
        ({"kind": "synthetic", "num_requests": 2, "prompt": FIXED, "output": FIXED}, "arrivals"),
        ({"kind": "traces"}, "did you mean 'trace'"),
    ],
)
def test_invalid_workload_is_a_one_line_error(
    table: dict[str, Any], words: str, folder: Path
) -> None:
    if table["kind"] == "trace":
        table = {"format": "mooncake", **table}
    with pytest.raises(InputError, match=words) as caught:
        stream(table, folder)
    assert "\n" not in str(caught.value)


def test_uncached_workload_recomputes_all_tokens_for_each_output_token(folder: Path) -> None:
    whole = stream(EXAMPLES["uncached"]["of"], folder)
    single = stream(example("uncached"), folder)
    tokens = {request.id: request for request in single.requests}
    assert len(tokens) == sum(request.output_tokens for request in whole.requests)
    for request in whole.requests:
        last, prompts = tokens[request.id], []
        for _ in range(request.output_tokens):
            prompts.append(last.prompt_tokens)
            first, last = last, tokens.get(last.after or "", last)
        assert prompts == list(
            range(request.prompt_tokens + request.output_tokens - 1, request.prompt_tokens - 1, -1)
        )
        assert (first.after, first.think_ps) == (request.after, request.think_ps)


def test_beam_requests_arrive_step_by_step_and_share_prefixes(folder: Path) -> None:
    whole = stream(EXAMPLES["beams"]["of"], folder)
    beams = stream(example("beams"), folder)
    assert len(beams.requests) == sum(1 + 3 * (r.output_tokens - 1) for r in whole.requests)
    names = {name for each in beams.requests for name in (each.id, each.group)}
    assert all(each.after is None or each.after in names for each in beams.requests)
    whole_by_id = {each.id: each for each in whole.requests}
    steps: dict[str, list[Request]] = {}
    for each in beams.requests:
        steps.setdefault(each.group or each.id, []).append(each)
    for name, together in steps.items():
        search = whole_by_id[name.split("#")[0]]
        step = int(name.split("#")[1]) if "#" in name else search.output_tokens - 1
        assert len(together) == (3 if step else 1)
        contents = {each.prompt_runs for each in together}
        assert len(contents) == len(together)
        assert {each.prompt_tokens for each in together} == {search.prompt_tokens + step}
        assert {each.output_tokens for each in together} == {1}
        assert search.prompt_runs is not None
        (best, *_) = together
        expected = (*search.prompt_runs, *([(search.output_start, step)] if step else []))
        assert best.prompt_runs == expected
        if step:
            before = steps[together[0].after or ""]
            ends = {each.prompt_runs for each in before}
            for other in together[1:]:
                assert other.prompt_runs is not None
                assert other.prompt_runs[:-1] in ends


@pytest.mark.parametrize(
    "changes",
    [{"n": 2}, {"max_tokens": "exact"}, {"of": {**EXAMPLES["uncached"]["of"], "n": 2}},
     {"of": {"kind": "uncached", **EXAMPLES["uncached"]}}],
)  # fmt: skip
def test_options_without_meaning_in_uncached_workloads_are_refused(
    changes: Any, folder: Path
) -> None:
    with pytest.raises(InputError):
        stream(example("uncached", **changes), folder)


@pytest.mark.parametrize("limit", [1_000, 1_000_000])
def test_dropped_conversation_turns_are_noted_only_if_any(folder: Path, limit: int) -> None:
    """A run without dropped turns once had the note that 0 of 672 turns were left out."""
    turns = {"kind": "fixed", "tokens": 5}
    made = stream(example("sessions", max_context=limit, turns=turns), folder)
    told = [note for note in made.notes if note.startswith("left out")]
    assert bool(told) == (len(made.requests) < 5 * 60) == (limit == 1_000)
