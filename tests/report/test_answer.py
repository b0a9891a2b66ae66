"""A report begins with the answer to its scenario's question."""

from typing import Any

import pytest

import kvsim
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.units import PS_PER_MS
from kvsim.report.answer import answer
from kvsim.report.page import make_page
from kvsim.request import Request
from kvsim.scenario import Scenario

REQUESTS = [Request(f"r{i}", i * 40 * PS_PER_MS, 40, 10 + i) for i in range(20)]
ALLOCATORS = [{"kind": "paged"}, {"kind": "max-buffer"}]


def asked(tables: Any, measure: str, **more: Any) -> Any:
    question = {"text": "Is it quick?", "measure": measure, **more}
    return kvsim.simulate(tables(allocator=ALLOCATORS, question=question), REQUESTS)


@pytest.mark.parametrize(
    ("measure", "start", "end"),
    [
        ("ttft", "arrival_ps", "first_token_ps"),
        ("e2e", "arrival_ps", "finish_ps"),
        ("queue", "arrival_ps", "scheduled_ps"),
    ],
)
def test_answer_reports_the_share_of_requests_within_the_limit(
    tables: Any, measure: str, start: str, end: str
) -> None:
    result = asked(tables, measure, within_s=0.12)
    said = answer(result)
    assert said is not None
    assert said.startswith("Is it quick? ")
    for run in result.runs:
        waits_ps = run.requests[end] - run.requests[start]
        share = (waits_ps <= 120 * PS_PER_MS).mean()
        assert f"{100 * share:.0f} %" in said


def test_refused_requests_miss_every_objective(tables: Any) -> None:
    question = {"text": "Is it quick?", "measure": "ttft", "within_s": 1000.0}
    requests = [*REQUESTS[:3], Request("long", 0, 4096, 2048)]
    made = tables(allocator=[{"kind": "paged"}], question=question)
    said = answer(kvsim.simulate(made, requests))
    assert (
        said == "Is it quick? 75 % of the requests had a first token within 16.7 min under paged."
    )


@pytest.mark.parametrize(
    ("measure", "words"),
    [
        ("ttft", "100 % of the requests had a first token within 16.7 min under paged"),
        ("tpot", "100 % of the requests took at most 16.7 min per output token on average under"),
        ("e2e", "100 % of the requests were done within 16.7 min under paged"),
        ("queue", "100 % of the requests were scheduled within 16.7 min under paged"),
    ],
)
def test_answer_words_each_latency_limit(tables: Any, measure: str, words: str) -> None:
    said = answer(asked(tables, measure, within_s=1000.0))
    assert said is not None
    assert f"Is it quick? {words}" in said


@pytest.mark.parametrize(
    ("measure", "title"),
    [
        ("ttft", "Time to first token, median: "),
        ("hits", "Prompt tokens found in the prefix cache: "),
        ("running", "Sequences running, mean: "),
        ("used", "Share of the pool that held tokens: "),
        ("queue", "Wait before the first step, median: "),
        ("tokens_per_s", "Output tokens per second: "),
    ],
)
def test_answer_has_a_number_for_each_run(tables: Any, measure: str, title: str) -> None:
    said = answer(asked(tables, measure))
    assert said is not None
    assert said.startswith(f"Is it quick? {title}")
    assert said.endswith("under max-buffer.")


def test_page_begins_with_the_question_and_its_answer(tables: Any) -> None:
    result = asked(tables, "e2e", within_s=0.2)
    text = make_page(result)
    assert text.index("Is it quick?") < text.index("ran in the same pool")


def test_result_without_a_question_has_no_answer(tables: Any) -> None:
    made = tables(allocator=[{"kind": "paged"}])
    assert answer(kvsim.simulate(made, REQUESTS)) is None


def test_answer_limit_requires_a_latency(tables: Any) -> None:
    question = {"text": "Is it quick?", "measure": "hits", "within_s": 1.0}
    with pytest.raises(InputError, match="question: within_s limits a latency"):
        Scenario.from_table(tables(allocator=ALLOCATORS, question=question))


def test_answer_says_none_for_a_run_without_the_measure(tables: Any) -> None:
    question = {"text": "How much is found?", "measure": "hits"}
    said = answer(kvsim.simulate(tables(allocator=ALLOCATORS, question=question), REQUESTS))
    assert said is not None
    assert said.endswith("and none under max-buffer.")


def test_first_screen_of_a_run_has_two_paragraphs_and_its_limit(tables: Any) -> None:
    for question in ({}, {"question": {"text": "Is it quick?", "measure": "ttft"}}):
        page = make_page(kvsim.simulate(tables(allocator=ALLOCATORS, **question), REQUESTS))
        words, limits, act = (page.index(f'class="{name}"') for name in ("words", "limits", "act"))
        first, limit = page[words:limits], page[limits:act]
        assert first.count("</p>") == 2
        assert limit.count("</p>") == 1
