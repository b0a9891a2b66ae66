"""Sentences on a diagnosis: the verdict, the causes, and the remaining problems."""

from collections.abc import Iterator

from kvsim.report import numbers
from kvsim.whatif.deployments import num_replicas
from kvsim.whatif.doctor.diagnosis import CauseFinding, Diagnosis
from kvsim.whatif.doctor.effect import E2E, TTFT, Effect
from kvsim.whatif.doctor.examined_run import ExaminedRun
from kvsim.whatif.intervals import ratio_text
from kvsim.whatif.watch import SUBSTANTIAL

OUTCOMES = {
    "cause": "it hurts",
    "beside": "the same trouble",
    "trade": "one is bought with the other",
    "unsure": "may be chance",
    "worse": "present, its cure does harm",
    "harmless": "present, no effect",
    "no cure": "present, no flag cures it",
    "failed": "could not be tried",
}


# Of 83 published runs the roofline's times between tokens are off by -49 to +22 % in the median by
# GPU, measured kernels' by less (reports/real-runs): a real time more than twice as long is not the
# step time's error.
BEYOND = 2.0
TIMES = ("TPOT, mean", "E2E, mean")
LOAD = {
    True: "Nothing to cure: the requests came all together and take their turns, and neither "
    "memory nor a setting makes them wait longer than the GPU computes.",
    False: "Requests wait, and would with any memory and any number of sequences: more comes than "
    "this GPU computes. No flag cures that. kvsim capacity finds the rate that it holds out.",
}


def doctor_sentences(diagnosis: Diagnosis) -> list[str]:
    """The verdict, then its causes, the remaining problems, and the reliability of the answer."""
    return [
        _verdict(diagnosis),
        *_refusals(diagnosis),
        *_causes(diagnosis),
        *_rest(diagnosis),
        *(
            f"Present, but no flag cures it: {each.title} ({each.name}): "
            f"{'; '.join(each.evidence)}."
            for each in diagnosis.incurable
        ),
        *(f"Beware: {text}." for text in _cautions(diagnosis)),
        _basis(diagnosis),
        *(f"Note: {note}." for note in (*diagnosis.subject.notes, *_replica(diagnosis.case))),
    ]


def _replica(case: ExaminedRun) -> Iterator[str]:
    """The sentence that names the fleet's replica that was examined."""
    if case.number is not None:
        yield (
            f"of {num_replicas(case.whole.scenario):,} replicas the busiest, #{case.number}, was "
            "examined"
        )
        yield "the effect of a cure is that of its flags on every replica, over all requests"


def suspicions(diagnosis: Diagnosis) -> list[str]:
    """Sentences with the evidence for suspicions that turned out not to be causes."""
    return [
        f"Suspected: {each.title} ({each.name}), {outcome_text(each)}: "
        f"{'; '.join(each.evidence)}{f' (not tried: {each.reason})' if each.reason else ''}."
        for each in diagnosis.findings
        if each.outcome not in ("cause", "no cure")
    ]


def _slower(diagnosis: Diagnosis) -> str | None:
    """The sentence on how much slower the real server is than simulated, if step times do not
    explain it.
    """
    for each in diagnosis.subject.beside:
        if each.name in TIMES and each.real and each.real > BEYOND * each.simulated:
            times = numbers.times(each.real / each.simulated)
            return f"the real server's {each.name} is {times} that of the simulated one"
    return None


def _verdict(diagnosis: Diagnosis) -> str:
    slow = _slower(diagnosis)
    causes = diagnosis.causes
    if slow is not None and not causes:
        return (
            f"Cannot tell: {slow}, and nothing that is simulated makes it so. What slows it is "
            "outside: the host, the network, kernels, other users of the GPU."
        )
    if diagnosis.healthy:
        return "Healthy: nothing was found that hurts."
    if causes:
        first = causes[0]
        more = f", and {numbers.plural(len(causes) - 1, 'cause')} more" if len(causes) > 1 else ""
        effect = diagnosis.together or first.on_top or first.effect
        assert effect is not None  # a cause was tried
        cure = f"{numbers.listed([flags(each) for each in causes])}: {effect_text(effect)}."
        return f"It suffers from {first.title} ({first.name}){more}. {cure}"
    if diagnosis.rest == "well" and diagnosis.incurable:
        return "Nothing was found that a flag cures."
    if diagnosis.rest == "refused":
        return "Nothing was found that a flag cures."
    if diagnosis.rest == "load":
        return LOAD[diagnosis.case.at_once]
    if any(each.outcome == "unsure" for each in diagnosis.findings):
        return (
            "Cannot tell: a suspected cause seems to help, but it may be chance. A larger --repeat "
            "or --requests would show it."
        )
    return (
        "Cannot tell: requests wait or are computed again, memory or sequences to spare would "
        "help or may, and none of the known causes explains it."
    )


def _refusals(diagnosis: Diagnosis) -> Iterator[str]:
    """The sentence on requests that were never served and so have no known waits."""
    for case, when in ((diagnosis.case, ""), (diagnosis.cured, " even then")):
        if case.refused_share >= SUBSTANTIAL and (when == "" or case is not diagnosis.case):
            share, (_, _, reason) = numbers.percent(case.refused_share), case.recorder.rejected[0]
            others = " The numbers are of the others." if case.refused_share < 1 else ""
            yield (
                f"{share} of the requests are refused{when}, the first because {reason}.{others}"
            )


def _causes(diagnosis: Diagnosis) -> Iterator[str]:
    fresh = "" if diagnosis.replicates.exact else ", on requests that were not used to find it"
    for number, each in enumerate(diagnosis.causes, 1):
        assert each.cure is not None
        assert each.effect is not None
        above = " With those above cured" if number > 1 else " It is cured by"
        verb = ", what cures it is" if number > 1 else ""
        yield (
            f"{number}. {each.title[0].upper()}{each.title[1:]}: {'; '.join(each.evidence)}."
            f"{above}{verb} {each.cure.flags}: {effect_text(each.on_top or each.effect)}{fresh}."
        )
    if diagnosis.together is not None and len(diagnosis.causes) > 1:
        yield f"All of it together: {effect_text(diagnosis.together)}{fresh}."


def _rest(diagnosis: Diagnosis) -> Iterator[str]:
    if not diagnosis.causes:
        return
    slow = _slower(diagnosis)
    if slow is not None:
        yield (
            f"But {slow}: something outside of what is simulated slows it, beside the causes above."
        )
    if diagnosis.rest == "load":
        yield (
            "What still waits then waits for the GPU to compute: with any memory it would be the "
            "same."
        )
    elif diagnosis.rest not in ("well", "refused"):
        yield "Requests still wait then, and still more memory, or sequences, would help."


def _cautions(diagnosis: Diagnosis) -> Iterator[str]:
    for each in diagnosis.causes:
        if each.cure is not None and each.cure.caution:
            yield f"{each.cure.flags}: {each.cure.caution}"


def _basis(diagnosis: Diagnosis) -> str:
    sets = diagnosis.replicates
    if sets.exact:
        return (
            "Nothing here is random: differences are exact for these requests, and others may "
            "differ."
        )
    of = "parts of the trace" if sets.search[0].window_s is not None else "seeds"
    return (
        f"Cures were searched on {len(sets.search)} {of}, tested on {len(sets.test)} others and "
        f"confirmed on {len(sets.report)} more; {diagnosis.runs} runs."
    )


def effect_text(effect: Effect) -> str:
    """The effect of a cure: `end to end -56 % (-59 to -52), first token -78 %, hits +77 points`."""
    parts = []
    if effect.served:
        parts.append(f"{100 * effect.served:+.0f} % of the requests served")
    for name, words in ((E2E, "end to end"), (TTFT, "first token")):
        if name in effect.ratios:
            parts.append(f"{words} {ratio_text(effect.ratios[name])}")
    if abs(effect.hit_points) >= 1:
        parts.append(f"hits {effect.hit_points:+.0f} points")
    return ", ".join(parts) or "nothing that can be compared"


def outcome_text(finding: CauseFinding) -> str:
    """The outcome of a finding in words; "no effect" only if nothing changes by a twentieth."""
    effect = finding.effect
    if finding.outcome == "harmless" and effect is not None and not effect.small:
        return "present, no gain beyond chance"
    return OUTCOMES[finding.outcome]


def flags(finding: CauseFinding) -> str:
    """The cure's flags, or words for none."""
    return numbers.NOTHING if finding.cure is None else finding.cure.flags
