import copy

import pytest
from support.summaries import bare_run

from kvsim.memory.ledger import CLASSES
from kvsim.report.classes import LOOKS
from kvsim.report.names import listed
from kvsim.report.remarks import remarks
from kvsim.report.words import paragraphs
from kvsim.results.result import Result

STATS = {"mean": 1.0, "p50": 0.34, "p90": 1.0, "p95": 1.0, "p99": 1.0}


def run(label, running, makespan_s, shares, **other):
    time_mean = {**dict.fromkeys(CLASSES, 0.0), **shares}
    time_mean["idle"] = 1 - sum(time_mean.values())
    return {
        "allocator": label,
        "label": label,
        "requests": {"submitted": 1000, "finished": 1000, "rejected": 0},
        "preemptions": 0,
        "makespan_s": makespan_s,
        "running_mean": running,
        "ttft_s": STATS,
        "memory": {
            "capacity_bytes": 12 << 30,
            "capacity_tokens": 15728,
            "time_mean": time_mean,
            "peak_allocated": 1.0,
        },
        "prefix_cache": {"query_tokens": 0, "hit_tokens": 0},
        "copied_bytes": 0,
        "recomputed_tokens": 0,
        "swapped_bytes": 0,
        **other,
    }


def say(*runs):
    return paragraphs(Result({}, tuple(bare_run(r) for r in runs)))


MAX = run(
    "max-buffer", 7.0, 2880.0, {"used": 0.3, "overprovisioned": 0.574, "reserved": 0.05},
    ttft_s={**STATS, "p50": 95.0},
)  # fmt: skip
PAGED = run("paged", 31.2, 720.0, {"used": 0.95, "reserved": 0.011})


def test_report_words_compare_two_allocators():
    assert say(MAX, PAGED) == [
        "The same 1,000 requests ran in the same pool of 12.0 GiB, room for 15,728 tokens, under "
        "2 allocators. paged was done after 12.0 min, max-buffer after 48.0 min, 4.0 times as "
        "long. Half of the requests saw their first token within 340 ms under paged, and within "
        "95.0 s under max-buffer.",
        "max-buffer held 7.0 sequences at a time where paged held 31; 57 % of its memory was "
        "allocated for tokens that never came. paged used 95 % of the pool; no kind of "
        "waste took more than 1.1 % of its memory.",
    ]


@pytest.mark.parametrize(
    ("name", "part", "words"),
    [
        ("overprovisioned", "left_behind", "held tokens that a window had left behind"),
        ("reserved", "draft_slots", "was reserved for drafts"),
        ("rounding", "block_padding", "was padding"),
    ],
)
def test_waste_is_worded_by_the_part_that_is_most_of_it(name, part, words):
    mostly, hardly = (copy.deepcopy(run("one", 7.0, 10.0, {name: 0.4})) for _ in range(2))
    mostly["memory"]["parts"], hardly["memory"]["parts"] = {part: 0.3}, {part: 0.1}
    assert f"40 % of its memory {words}" in say(mostly)[1]
    assert words not in say(hardly)[1]


def test_report_words_describe_a_single_allocator():
    assert say(PAGED) == [
        "1,000 requests ran in a pool of 12.0 GiB, room for 15,728 tokens, under paged. "
        "1,000 requests were done after 12.0 min; half saw their first token within 340 ms.",
        "paged held 31 sequences at a time on average and used 95 % of the pool; no kind "
        "of waste took more than 1.1 % of its memory.",
    ]


def test_more_sequences_from_slower_steps_are_not_praised():
    quick = run("cache", 1.2, 1000.0, {"used": 0.06})
    slow = run("none", 7.2, 1600.0, {"used": 0.41})
    held = say(quick, slow)[1]
    assert held.startswith(
        "none held 7.2 sequences at a time and cache 1.2, as each stayed longer under none"
    )
    assert "times as many" not in held
    assert held.endswith("cache used 6.0 % of the pool; next to none of its memory was "
                         "wasted.")  # fmt: skip


def test_runs_with_different_finished_requests_are_not_compared():
    few = run("few", 3.0, 10.0, {"used": 0.5},
              requests={"submitted": 1000, "finished": 10, "rejected": 990})  # fmt: skip
    said = " ".join(say(few, PAGED))
    assert "did not finish the same requests (paged 1,000 and few 10)" in said
    assert "was done after" not in said
    assert "stayed longer" not in said


def test_report_words_name_saturated_runs():
    full = {**MAX, "notes": [{"about": "saturated", "text": "The queue grew."}]}
    assert say(full, PAGED)[1] == (
        "max-buffer was saturated: the queue grew until the last request arrived. So its waits "
        "depend on the length of the run, and its throughput is the maximum."
    )
    assert say(full, {**full, "label": "other"})[1].startswith("Both were saturated")


def test_labels_of_several_words_are_quoted():
    said = " ".join(say({**PAGED, "label": "paged, big"}))
    assert "“paged, big” held 31" in said
    assert [listed(names) for names in (["a", "b"], list("abcdef"))] == [
        "a and b",
        "a, b, c and 3 more",
    ]


def test_remarks_name_the_runs_they_apply_to():
    cold = {"about": "prefix-cache", "text": "The cache found nothing."}
    result = Result(
        {"provenance": {"notes": ["left out 3 of 9 turns"]}},
        tuple(
            bare_run({"label": label, "notes": notes})
            for label, notes in (("a", [cold]), ("b b", [cold]), ("c", []))
        ),
    )
    assert remarks(result) == [
        "Requests: left out 3 of 9 turns.",
        "a and “b b”: The cache found nothing.",
    ]


@pytest.mark.parametrize(
    ("window", "what"),
    [({}, "No steady part was found"), ({"from_s": 9.0}, "The window that was given was not")],
)
def test_remark_gives_the_reason_for_a_missing_window(window, what):
    runs = [
        bare_run({"label": label, "requests": {"finished": finished}, **found})
        for label, finished, found in (
            ("a", 5, {"window": {"found": "none", "reason": "too few"}}),
            ("b", 5, {}),
            ("c", 0, {"window": {"found": "none", "reason": "too few"}}),
        )
    ]
    (said,) = remarks(Result({"window": window}, tuple(runs)))
    assert said.startswith(f"a: {what}")
    assert said.endswith(": too few.")


def test_runs_within_a_twentieth_are_called_equal():
    done, held = say(run("a", 30.0, 100.0, {"used": 0.9}), run("b", 30.5, 101.0, {"used": 0.91}))
    assert done.endswith("Both were done after about 101 s.")
    assert "about as many sequences at a time as" in held


@pytest.mark.parametrize(
    ("other", "sentence"),
    [
        ({"preemptions": 1}, "x preempted sequences 1 time."),
        (
            {"preemptions": 12, "recomputed_tokens": 3400, "copied_bytes": 3 << 30},
            "x preempted sequences 12 times (3,400 tokens computed again) and copied 3.00 GiB of "
            "KV on the device.",
        ),
        (
            {"requests": {"submitted": 9, "finished": 7, "rejected": 2}},
            "x refused 2 requests that could never fit.",
        ),
        (
            {"prefix_cache": {"query_tokens": 1000, "hit_tokens": 430}},
            "x found 43 % of its prompt tokens in the prefix cache.",
        ),
        ({"swapped_bytes": 1 << 30}, "x swapped 1.00 GiB of KV to the host and back."),
    ],
)
def test_sentences_name_preemptions_copies_and_recomputation(other, sentence):
    assert say(run("x", 9.0, 1.0, {"used": 0.9}, **other))[-1] == sentence


def test_refusals_common_to_all_runs_are_one_sentence():
    refused = {"requests": {"submitted": 9, "finished": 7, "rejected": 2}}
    a, b = (run(label, 9.0, 1.0, {"used": 0.9}, **refused) for label in "ab")
    assert say(a, b)[-1] == "Each refused 2 requests that could never fit."


def test_each_allocators_waste_is_described_once():
    third = run("doubling", 22.0, 900.0, {"used": 0.6, "reserved": 0.2})
    held = say(MAX, third, PAGED)[1]
    assert " doubling held 22 sequences at a time where paged held 31; 20 % of its memory" in held
    assert held.count("paged used") == 1


def test_report_words_say_that_a_pool_was_never_full():
    roomy = copy.deepcopy(PAGED)
    roomy["memory"]["peak_allocated"] = 0.6
    assert say(roomy)[-1].startswith(
        "Memory was never the limit here: at least 40 % of the pool was free at every moment."
    )
    refused = run("max", None, 0.0, {}, requests={"submitted": 1, "finished": 0, "rejected": 1})
    assert not any("never the limit" in paragraph for paragraph in say(roomy, refused))
    roomy["memory"]["time_mean"].update(short=1e-5)  # a watermark keeps free memory back
    assert not any("never the limit" in paragraph for paragraph in say(roomy))


def test_report_words_describe_a_run_without_finished_requests():
    nothing = run(
        "x", None, 0.0, {}, requests={"submitted": 1, "finished": 0, "rejected": 1},
        ttft_s=dict.fromkeys(STATS),
    )  # fmt: skip
    assert say(nothing)[0] == (
        "1 request came to a pool of 12.0 GiB, room for 15,728 tokens, under x, and was refused."
    )
    assert say(nothing)[1:] == ["x refused 1 request that could never fit."]


def test_requests_that_were_all_refused_did_not_run():
    """ "5 requests ran" was once followed by "5 requests were refused"."""
    five = {"submitted": 5, "finished": 0, "rejected": 5}
    refused = run("x", None, 0.0, {}, requests=five, ttft_s=dict.fromkeys(STATS))
    (first, costs) = say(refused, {**refused, "label": "y"})
    assert first == (
        "The same 5 requests came to the same pool of 12.0 GiB, room for 15,728 tokens, under "
        "2 allocators, and were refused."
    )
    assert costs == "Each refused 5 requests that could never fit."
    served = run("z", 1.0, 9.0, {}, requests={"submitted": 5, "finished": 5, "rejected": 0})
    some = say(refused, served)[0]
    assert some.startswith("The same 5 requests ran in the same pool")
    assert "No request finished under x." in some


def test_report_words_describe_every_class_of_waste():
    for look in LOOKS:
        said = " ".join(say(run("x", 9.0, 1.0, {look.name: 0.5})))
        wasted = look.family == "held, not working" or look.name in ("external", "short")
        assert ("50 % of its memory" in said) == wasted


def test_report_words_accept_any_result(odd_result):
    said = paragraphs(odd_result)
    assert said
    assert not any("None" in paragraph or "nan" in paragraph for paragraph in said)
