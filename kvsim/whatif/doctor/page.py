"""A diagnosis as tables of text, as a page and as data."""

from typing import Any

from kvsim.plumbing.toml import to_toml
from kvsim.report import numbers
from kvsim.report.figures.shares import Shares
from kvsim.whatif import page
from kvsim.whatif.advice.words import ratio_text
from kvsim.whatif.doctor import figures
from kvsim.whatif.doctor.diagnosis import Diagnosis, Finding
from kvsim.whatif.doctor.effect import E2E, TTFT, Effect
from kvsim.whatif.doctor.examined_run import ExaminedRun
from kvsim.whatif.doctor.real import Beside
from kvsim.whatif.doctor.words import OUTCOMES, flags, sentences


def real_table(diagnosis: Diagnosis) -> page.Cells:
    """The real run beside its simulation."""
    rows = tuple(
        (
            each.name,
            _amount(each, each.real),
            _amount(each, each.simulated),
            _difference(each),
        )
        for each in diagnosis.patient.beside
    )
    return page.Cells(
        "Real and simulated",
        "The same requests under the same settings, the whole run. Differences are simulated "
        "against real, of shares in points; in brackets where 95 % of them lie had other requests "
        "been drawn.",
        ("", "real", "simulated", "difference"),
        rows,
    )


def findings_table(diagnosis: Diagnosis) -> page.Cells:
    """Everything that was suspected, causes first."""
    rows = tuple(
        (
            each.name,
            OUTCOMES[each.outcome],
            _number(each, E2E),
            _number(each, TTFT),
            flags(each),
        )
        for each in diagnosis.findings
    )
    return page.Cells(
        "What was suspected",
        "Each cure alone, against the server as it is (causes that take resources: with the "
        "settings above cured), as ratios of means; in the test for those that went so far, else "
        "in the search.",
        ("", "", "E2E", "TTFT", "vllm serve"),
        rows,
    )


def signs_table(diagnosis: Diagnosis) -> page.Cells:
    """The signs of the run as it is, and with all causes cured."""
    named = _named(diagnosis)
    heads = ["", *(name for name, _ in named)]
    columns = [_signs(case) for _, case in named]
    rows = tuple((name, *(column[name] for column in columns)) for name in columns[0])
    return page.Cells("Signs", "One run, at the scenario's own seed.", tuple(heads), rows)


def suspicions(diagnosis: Diagnosis) -> list[str]:
    """What spoke for suspicions that are no cause, a sentence each; causes have theirs already."""
    return [
        f"Suspected: {each.title} ({each.name}), {OUTCOMES[each.outcome]}: "
        f"{'; '.join(each.evidence)}{_why(each)}."
        for each in diagnosis.findings
        if each.outcome not in ("cause", "no cure")
    ]


def make_page(diagnosis: Diagnosis) -> str:
    """The page as HTML."""
    case = diagnosis.case
    sections: list[page.Section] = [signs_table(diagnosis)]
    if diagnosis.patient.beside:
        sections.insert(0, real_table(diagnosis))
    named = _named(diagnosis)
    sections += [
        page.Drawing(
            "Where requests spent their time",
            "The mean from arrival to the last token, and what held the queue meanwhile. Blue ran, "
            "the warm colours waited for what a setting or memory decides, grey for its turn.",
            figures.times(named),
        ),
        page.Drawing(Shares.title, Shares.note, figures.pools(named)),
    ]
    if diagnosis.findings:
        sections.append(findings_table(diagnosis))
    if diagnosis.causes:
        lines = "\n".join(flags(each) for each in diagnosis.causes)
        sections.append(page.Code("The cure", "Flags of `vllm serve`, in order.", lines))
    facts = [
        *([("run", diagnosis.patient.name)] if diagnosis.patient.name else []),
        ("allocator", case.label),
        ("requests", numbers.count(case.num_requests)),
        ("runs", str(diagnosis.runs)),
    ]
    words = [*sentences(diagnosis), *suspicions(diagnosis)]
    scenario = to_toml(case.simulation.resolved())
    return page.make_page("What the server suffers from", facts, words, sections,
                          scenario)  # fmt: skip


def as_dict(diagnosis: Diagnosis) -> dict[str, Any]:
    """For `--json`: shares as fractions, times in seconds."""
    return {
        "label": diagnosis.case.label,
        "run": diagnosis.patient.name or None,
        "real": [each.as_dict() for each in diagnosis.patient.beside],
        "healthy": diagnosis.healthy,
        "rest": diagnosis.rest,
        "causes": [each.name for each in diagnosis.causes],
        "findings": [_entry(each) for each in diagnosis.findings],
        "together": _effect_entry(diagnosis.together),
        "signs": {
            "as_it_is": _sign_entries(diagnosis.case),
            "cured": _sign_entries(diagnosis.cured),
        },
        "words": sentences(diagnosis),
        "replicates": {
            name: [each.name for each in getattr(diagnosis.replicates, name)]
            for name in ("search", "test", "report")
        },
        "notes": list(diagnosis.patient.notes),
        "runs": diagnosis.runs,
    }


def _entry(finding: Finding) -> dict[str, Any]:
    cure = finding.cure
    return {
        "name": finding.name,
        "title": finding.title,
        "outcome": finding.outcome,
        "takes_resources": finding.resource,
        "evidence": list(finding.evidence),
        "vllm_serve": cure and cure.flags,
        "changes": cure and dict(cure.changes),
        "caution": cure and (cure.caution or None),
        "effect": _effect_entry(finding.effect),
        "on_top": _effect_entry(finding.on_top),
        "reason": finding.reason,
    }


def _effect_entry(effect: Effect | None) -> dict[str, Any] | None:
    if effect is None:
        return None
    return {
        **{name: ratio._asdict() for name, ratio in effect.ratios.items()},
        "hit_points": effect.hit_points,
        "served": effect.served,
    }


def _sign_entries(case: ExaminedRun) -> dict[str, Any]:
    summary = case.summary
    return {
        "requests": summary["requests"],
        "ttft_s": summary["ttft_s"],
        "tpot_s": summary["tpot_s"],
        "e2e_s": summary["e2e_s"],
        "running_mean": summary["running_mean"],
        "waiting_mean": summary["waiting_mean"],
        "waits": case.waits._asdict(),
        "preemptions": summary["preemptions"],
        "recomputed_share": case.recomputed_share,
        "hit_share": case.hit_share if case.caching else None,
        "memory": summary["memory"]["time_mean"],
    }


def _named(diagnosis: Diagnosis) -> list[tuple[str, ExaminedRun]]:
    """The runs to show: as it is, and with the causes cured where there are some."""
    named = [("as it is", diagnosis.case)]
    if diagnosis.cured is not diagnosis.case:
        named.append(("cured", diagnosis.cured))
    return named


def _signs(case: ExaminedRun) -> dict[str, str]:
    summary, waits = case.summary, case.waits
    refused = summary["requests"]["rejected"]
    held = ("reserved", "overprovisioned", "rounding", "transient", "external")
    return {
        "TTFT, mean (p99)": _latency(summary["ttft_s"]),
        "TPOT, mean (p99)": _latency(summary["tpot_s"]),
        "E2E, mean (p99)": _latency(summary["e2e_s"]),
        "running, mean": numbers.number(summary["running_mean"]),
        "waiting, mean": numbers.number(summary["waiting_mean"]),
        "time spent waiting at max_num_seqs": numbers.percent(waits.limit),
        "... for memory": numbers.percent(waits.memory),
        "... for a hole large enough": numbers.percent(waits.holes),
        "... for room in the step": numbers.percent(waits.step),
        "preemptions": numbers.count(summary["preemptions"]),
        "tokens computed again": numbers.percent(case.recomputed_share),
        "prompt tokens found": numbers.percent(case.hit_share) if case.caching else "no cache",
        "pool at work": numbers.percent(case.share("used")),
        "pool held and empty": numbers.percent(sum(map(case.share, held))),
        "requests refused": numbers.count(refused),
    }


def _amount(of: Beside, value: float | None) -> str:
    if value is None:
        return "not recorded"
    if of.unit == "s":
        return numbers.seconds(value)
    return numbers.percent(value) if of.unit == "share" else numbers.number(value)


def _difference(of: Beside) -> str:
    if of.difference is None:
        return numbers.NOTHING
    unit = "points" if of.unit == "share" else "%"
    mean = f"{100 * of.difference:+.1f} {unit}"
    if of.low is None or of.high is None:
        return mean
    return f"{mean} ({100 * of.low:+.1f} to {100 * of.high:+.1f})"


def _latency(spread: dict[str, float | None]) -> str:
    return f"{numbers.seconds(spread['mean'])} ({numbers.seconds(spread['p99'])})"


def _number(finding: Finding, name: str) -> str:
    return ratio_text(finding.effect.ratios.get(name) if finding.effect else None)


def _why(finding: Finding) -> str:
    return f" (not tried: {finding.reason})" if finding.reason else ""
