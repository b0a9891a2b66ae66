"""The findings of `kvsim doctor`: symptoms, suspected causes, and the flags that cure the confirmed
ones.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

from kvsim.engine.schedulers import SCHEDULERS
from kvsim.report import numbers
from kvsim.report.figures.shares import Shares
from kvsim.report.intervals import NARROW
from kvsim.report.measured import table_of
from kvsim.results.measured import differences
from kvsim.validate.run.intervals import DRAWN_AGAIN
from kvsim.whatif.doctor import doctor_figures
from kvsim.whatif.doctor.diagnosis import CauseFinding, Diagnosis
from kvsim.whatif.doctor.doctor_sentences import (
    doctor_sentences,
    flags,
    outcome_text,
    suspicions,
)
from kvsim.whatif.doctor.effect import E2E, TTFT, Effect
from kvsim.whatif.doctor.examined_run import ExaminedRun
from kvsim.whatif.doctor.real import Beside
from kvsim.whatif.doctor.spent import Spent
from kvsim.whatif.findings import (
    CommandText,
    Findings,
    FindingsColumn,
    FindingsFigure,
    FindingsTable,
    Section,
    as_data,
)
from kvsim.whatif.intervals import ratio_text
from kvsim.whatif.scenario_tables import pool_as_given
from kvsim.whatif.servers import program, server_command
from kvsim.whatif.servers.flags import changed_flags

_RARE = ("... for an adapter's slot", "... for the encoder", "... for a load")
_EMPTY = ("reserved", "overprovisioned", "rounding", "transient", "external")


def doctor_findings(diagnosis: Diagnosis) -> Findings:
    """The findings on one server."""
    case, subject = diagnosis.case, diagnosis.subject
    server = program(SCHEDULERS.name_of(case.scheduler))
    runs = [("as it is", case)]
    if diagnosis.cured is not case:
        runs.append(("cured", diagnosis.cured))
    took = diagnosis.spent[: len(runs)]
    on = "" if diagnosis.replicates.exact else f" over {took[0].replicates} fresh seeds"
    note = (
        f"The mean time of a request from its arrival to its last token{on}. In blue it ran. In "
        "the other colours it waited, and the legend says for what."
    )
    spent_by = [(name, each) for (name, _), each in zip(runs, took, strict=True)]
    times, pools = partial(doctor_figures.times, spent_by), partial(doctor_figures.pools, runs)
    sections: list[Section] = [
        *([_measured_table(diagnosis)] if subject.measured is not None else []),
        *([_real_table(subject.beside)] if subject.beside else []),
        FindingsFigure("Where requests spent their time", note, times, lead=True),
        *([_causes_table(diagnosis.findings, server)] if diagnosis.findings else []),
        _signs_table(runs, took),
        FindingsFigure(Shares.title, Shares.note, pools),
    ]
    if diagnosis.causes:
        own = subject.table
        before = server_command(own, subject.folder)
        cure = server_command(pool_as_given(diagnosis.best, own), subject.folder, own)
        if before is not None and cure is not None:
            note = f"What to change in the flags of {server}; all others stay."
            sections.append(CommandText("The cure", note, changed_flags(before, cure), lead=True))
    return Findings(
        "What the server suffers from",
        [
            *([("run", subject.name)] if subject.name else []),
            ("allocator", case.label),
            *([] if case.number is None else [("replica", f"#{case.number}")]),
            ("requests", numbers.count(case.num_requests)),
            ("runs", str(diagnosis.runs)),
        ],
        doctor_sentences(diagnosis),
        sections,
        case.whole.resolved(),
        _data(diagnosis),
        suspicions(diagnosis),
    )


def _measured_table(diagnosis: Diagnosis) -> FindingsTable:
    measured = diagnosis.subject.measured
    assert measured is not None
    table = table_of(measured, {diagnosis.case.label: diagnosis.case.summary})
    rows = [(row.name, row.measured, *row.runs[0]) for row in table.rows]
    return FindingsTable("Measured and simulated", table.note, ("", *table.heads()), rows)


def _measured_data(diagnosis: Diagnosis) -> dict[str, Any]:
    measured = diagnosis.subject.measured
    if measured is None:
        return {}
    return {
        "measured": measured.as_json(),
        "difference": differences(measured, diagnosis.case.summary),
    }


def _real_table(beside: tuple[Beside, ...]) -> FindingsTable:
    return FindingsTable(
        "Real and simulated",
        "The same requests under the same settings, the whole run. Differences are simulated "
        f"against real, of shares in points; in brackets {DRAWN_AGAIN}.",
        ("", "real", "simulated", "difference"),
        [
            (each.name, _amount(each, each.real), _amount(each, each.simulated), _difference(each))
            for each in beside
        ],
    )


def _amount(of: Beside, value: float | None) -> str:
    if value is None:
        return "not recorded"
    forms = {"s": numbers.seconds, "share": numbers.percent, "count": numbers.number}
    return forms[of.unit](value)


def _difference(of: Beside) -> str:
    if of.difference is None:
        return numbers.NOTHING
    mean = f"{100 * of.difference:+.1f} {'points' if of.unit == 'share' else '%'}"
    if of.low is None or of.high is None:
        return mean
    return f"{mean} ({100 * of.low:+.1f} to {100 * of.high:+.1f})"


def _signs_table(runs: list[tuple[str, ExaminedRun]], took: Sequence[Spent]) -> FindingsTable:
    """A table of symptoms, with a column for each run."""
    columns = [_signs(case, each) for (_, case), each in zip(runs, took, strict=True)]
    nothing = numbers.percent(0)
    rows = [
        (sign, *(column[sign] for column in columns))
        for sign in columns[0]
        if sign not in _RARE or any(column[sign] != nothing for column in columns)
    ]
    heads = ("", *(name for name, _ in runs))
    note = "One run, at the scenario's own seed; latencies are those of the effects above."
    return FindingsTable("Signs", note, heads, rows)


def _signs(case: ExaminedRun, took: Spent) -> dict[str, str]:
    summary, waits = case.summary, case.waits
    latencies = {
        "TTFT": (took.ttft_s, took.ttft_p99_s),
        "TPOT": (took.tpot_s, took.tpot_p99_s),
        "E2E": (took.e2e_s, took.e2e_p99_s),
    }
    return {
        **{f"{name}, mean (p99)": _latency(*each) for name, each in latencies.items()},
        "running, mean": numbers.number(summary.running_mean),
        "waiting, mean": numbers.number(summary.waiting_mean),
        "time spent waiting for max_num_seqs": numbers.percent(waits.limit),
        "... for memory": numbers.percent(waits.memory),
        "... for a large enough gap": numbers.percent(waits.holes),
        "... for room in a step": numbers.percent(waits.step),
        "... for an adapter's slot": numbers.percent(waits.adapters),
        "... for the encoder": numbers.percent(waits.encoder),
        "... for a load": numbers.percent(waits.loads),
        "preemptions": numbers.count(summary.preemptions),
        "tokens computed again": numbers.percent(case.recomputed_share),
        "prompt tokens found": numbers.percent(case.hit_share) if case.caching else "no cache",
        "pool in use": numbers.percent(case.share("used")),
        "pool held and empty": numbers.percent(sum(map(case.share, _EMPTY))),
        "requests refused": numbers.count(summary.requests.rejected),
    }


def _latency(mean_s: float | None, p99_s: float | None) -> str:
    return f"{numbers.seconds(mean_s)} ({numbers.seconds(p99_s)})"


def _causes_table(findings: tuple[CauseFinding, ...], server: str) -> FindingsTable:
    """A table of everything suspected, causes first."""
    return FindingsTable(
        "What was suspected",
        "E2E and TTFT are changes of the means. Of a cause they are those of the text: its cure "
        "beside those of the causes above it, on fresh seeds. Of all others they are of the cure "
        "alone: a setting against the server as it is, memory, GPUs or precision against the "
        f"server with the settings cured; on test seeds, else on search seeds. {NARROW}",
        (
            "",
            server,
            "",
            FindingsColumn("E2E", ratio_text),
            FindingsColumn("TTFT", ratio_text),
        ),
        [
            (
                *(each.name, flags(each), outcome_text(each)),
                *(effect and effect.ratios.get(name) for name in (E2E, TTFT)),
            )
            for each, effect in zip(findings, map(_effect_shown, findings), strict=True)
        ],
    )


def _effect_shown(finding: CauseFinding) -> Effect | None:
    return finding.on_top if finding.outcome == "cause" else finding.effect


def _data(diagnosis: Diagnosis) -> dict[str, Any]:
    """The JSON answer: shares as fractions, times in seconds."""
    subject = diagnosis.subject
    return {
        "label": diagnosis.case.label,
        "replica": diagnosis.case.number,
        "run": subject.name or None,
        **_measured_data(diagnosis),
        "real": [{**each._asdict(), "difference": each.difference} for each in subject.beside],
        "healthy": diagnosis.healthy,
        "rest": diagnosis.rest,
        "causes": [each.name for each in diagnosis.causes],
        "findings": [_cause_data(each) for each in diagnosis.findings],
        "together": _effect_data(diagnosis.together),
        "signs": {"as_it_is": _sign_data(diagnosis.case), "cured": _sign_data(diagnosis.cured)},
        "words": doctor_sentences(diagnosis),
        "replicates": diagnosis.replicates.names(),
        "notes": list(subject.notes),
        "runs": diagnosis.runs,
    }


def _cause_data(finding: CauseFinding) -> dict[str, Any]:
    cure = finding.cure
    return {
        "name": finding.name,
        "title": finding.title,
        "outcome": finding.outcome,
        "takes_resources": finding.resource,
        "evidence": list(finding.evidence),
        "flags": cure and cure.flags,
        "changes": cure and dict(cure.changes),
        "caution": cure and (cure.caution or None),
        "effect": _effect_data(finding.effect),
        "on_top": _effect_data(finding.on_top),
        "reason": finding.reason,
    }


def _effect_data(effect: Effect | None) -> dict[str, Any] | None:
    return effect and {
        **as_data(effect.ratios),
        "hit_points": effect.hit_points,
        "served": effect.served,
    }


def _sign_data(case: ExaminedRun) -> dict[str, Any]:
    summary = case.summary
    parts = {
        "requests": summary.requests,
        "ttft_s": summary.ttft_s,
        "tpot_s": summary.tpot_s,
        "e2e_s": summary.e2e_s,
    }
    return {
        **{name: part.as_json() for name, part in parts.items()},
        "running_mean": summary.running_mean,
        "waiting_mean": summary.waiting_mean,
        "waits": case.waits._asdict(),
        "preemptions": summary.preemptions,
        "recomputed_share": case.recomputed_share,
        "hit_share": case.hit_share if case.caching else None,
        "memory": summary.memory.time_mean.as_json(),
    }
