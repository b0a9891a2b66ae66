"""The examination: suspect, try the cures, test what helped, put it together.

1. One run as it is. Each cause of the registry looks at its ledger and collects evidence.
2. Search: every cure of every suspect against the unchanged run, on the same seeds, pair by pair.
   The best cure represents its cause.
3. Test: the cures that helped, on other seeds, with intervals widened for their number
   (Bonferroni). A gain of a twentieth or less, or one by chance, does not count (`effect`).
4. Causes that a setting cures are cured one after the other, best first. A cure that then changes
   nothing more treats the same trouble as the causes before it. With these cured, causes that take
   resources are examined in the same way: more memory would hide any of the others.
5. Each cause again, and all cures at once, on seeds that nothing of this has seen. A cure that
   does not help there too may have helped by chance. All printed figures of a cause are of these
   seeds. It is also checked whether requests still wait.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from kvsim.plumbing.errors import InputError
from kvsim.report.intervals import CONFIDENCE
from kvsim.scenario import Scenario
from kvsim.simulation import Simulation
from kvsim.whatif.doctor.causes import CAUSES, Cause, Cure, Suspicion
from kvsim.whatif.doctor.diagnosis import CauseFinding, Diagnosis, FindingOutcome, Rest
from kvsim.whatif.doctor.effect import Effect, effect_of
from kvsim.whatif.doctor.examined_run import ExaminedRun
from kvsim.whatif.doctor.shorten import LEAST_REQUESTS
from kvsim.whatif.doctor.spent import Spent, spent
from kvsim.whatif.doctor.subject import DoctorSubject
from kvsim.whatif.pairs import Trials
from kvsim.whatif.replicates import Replicate, replicates
from kvsim.whatif.runner import TaskRunner
from kvsim.whatif.scenario_tables import Table, pinned, sized_in_bytes
from kvsim.whatif.watch import SUBSTANTIAL

AS_GOOD = 0.01  # of gains: of cures as good as the best the first is taken, the mildest
PLENTY = 16  # times the pool and the sequences: what still waits then waits for the GPU


class _Suspect(NamedTuple):
    name: str
    cause: Cause
    suspicion: Suspicion


class _Tried(NamedTuple):
    suspect: _Suspect
    cure: Cure
    effect: Effect


class Doctor:
    """The examination of one server. runner: of counterfactual runs. repeat: seeds of each set."""

    def __init__(self, subject: DoctorSubject, runner: TaskRunner, *, repeat: int = 4) -> None:
        table, folder = subject.table, subject.folder
        longest = Simulation(Scenario.from_table(table, folder), []).max_model_len
        self.table = sized_in_bytes(pinned(table, longest), folder)
        self.folder, self.runner = folder, runner
        self.subject = subject
        self.trials = Trials(runner, folder)
        self.replicates = replicates(self.table, folder, repeat, LEAST_REQUESTS)

    def diagnose(self) -> Diagnosis:
        """Run the whole examination. InputError if the scenario cannot be run at all."""
        case = ExaminedRun(self.table, self.folder)
        suspects = _suspects(case)
        settings = [each for each in suspects if not each.cause.resource]
        findings, best = self._treat(self.table, settings)
        cured = case if best is self.table else ExaminedRun(best, self.folder)
        before = {each.name for each in suspects if each.cause.resource}
        resources = [each for each in _suspects(cured) if each.cause.resource]
        more, best_of_all = self._treat(best, resources)
        left = before - {each.name for each in resources}
        gone = [_finding(each, None, None, "beside") for each in suspects if each.name in left]
        if best_of_all is not best:
            cured = ExaminedRun(best_of_all, self.folder)
        together = None
        if best_of_all is not self.table:
            together = self._effect(self.table, best_of_all, self.replicates.report)
        order = ("cause", "beside", "trade", "unsure", "no cure", "worse", "harmless", "failed")
        taken = self._spent(self.table)
        found = sorted([*findings, *more, *gone], key=lambda each: order.index(each.outcome))
        return Diagnosis(
            case,
            cured,
            best_of_all,
            tuple(found),
            together,
            self._rest(cured, best_of_all),
            self.replicates,
            self.runner.num_runs,
            self.subject,
            (taken, taken if best_of_all is self.table else self._spent(best_of_all)),
        )

    def _spent(self, table: Table) -> Spent:
        return spent(self.trials.rows(table, self.replicates.report, waits=True))

    def _treat(self, base: Table, suspects: Sequence[_Suspect]) -> tuple[list[CauseFinding], Table]:
        """Examine these suspects: returns findings, causes first, and the tables with the causes
        cured.
        """
        found: list[CauseFinding] = []
        tried: list[_Tried] = []
        tables = [
            cure.put(base)
            for each in suspects
            for cure in (*each.suspicion.cures, *filter(None, [each.suspicion.proof]))
        ]
        self.trials.run_all([base, *tables], self.replicates.search)
        for suspect in suspects:
            proof = suspect.suspicion.proof
            if not suspect.suspicion.cures:
                found.append(_finding(suspect, None, None, "no cure"))
                continue
            if proof is not None:
                effect = self._effect(base, proof.put(base), self.replicates.search)
                if not effect.helps:
                    found.append(_finding(suspect, proof, effect, _without_help(effect)))
                    continue
            best, reason = self._best(base, suspect)
            if best is None:
                found.append(_finding(suspect, None, None, "failed", reason=reason))
            else:
                tried.append(best)
        helpful, harmless = self._tested(base, tried)
        found += [
            _finding(each.suspect, each.cure, each.effect, _without_help(each.effect))
            for each in harmless
        ]
        best_table = base
        causes: list[CauseFinding] = []
        for each in sorted(helpful, key=lambda one: one.effect.gain, reverse=True):
            there = each.cure.put(best_table)
            try:
                on_top = self._effect(best_table, there, self._seen())
            except InputError:
                on_top = None  # two cures that cannot stand together
            if on_top is not None and on_top.helps:
                fresh = self._effect(best_table, there, self.replicates.report)
                if not fresh.helps:
                    outcome: FindingOutcome = "trade" if fresh.trades else "unsure"
                    found.append(_finding(each.suspect, each.cure, fresh, outcome))
                    continue
                best_table = there
                causes.append(_finding(each.suspect, each.cure, each.effect, "cause", fresh))
            else:
                found.append(_finding(each.suspect, each.cure, each.effect, "beside", on_top))
        return [*causes, *found], best_table

    def _best(self, base: Table, suspect: _Suspect) -> tuple[_Tried | None, str | None]:
        """The cure with the largest effect in the search; None and the reason if none could be
        run.
        """
        tried, reason = [], None
        for cure in suspect.suspicion.cures:
            try:
                effect = self._effect(base, cure.put(base), self.replicates.search)
            except InputError as error:
                reason = str(error)
                continue
            tried.append(_Tried(suspect, cure, effect))
        most = max((_rank(one.effect) for one in tried), default=(False, 0.0))
        equal = (one for one in tried if _rank(one.effect) >= (most[0], most[1] - AS_GOOD))
        return next(equal, None), reason

    def _tested(self, base: Table, tried: Sequence[_Tried]) -> tuple[list[_Tried], list[_Tried]]:
        """Split the tried causes by whether the cure helps on fresh replicates too, with its effect
        there.
        """
        helpful = [each for each in tried if each.effect.helps]
        harmless = [each for each in tried if not each.effect.helps]
        if self.replicates.exact:
            return helpful, harmless
        level = 1 - (1 - CONFIDENCE) / max(1, len(helpful))
        self.trials.run_all([base, *(each.cure.put(base) for each in helpful)], self._test)
        passed: list[_Tried] = []
        for each in helpful:
            again = each._replace(effect=self._effect(base, each.cure.put(base), self._test, level))
            (passed if again.effect.helps else harmless).append(again)
        return passed, harmless

    def _rest(self, cured: ExaminedRun, table: Table) -> Rest:
        """The remaining problem with all cures applied (`Diagnosis.rest`)."""
        if not _hurts(cured):
            return "refused" if cured.refused_share >= SUBSTANTIAL else "well"
        plenty = _with_plenty(cured, table)
        try:
            effect = self._effect(table, plenty, self.replicates.search)
        except InputError:
            return "unknown"  # such a server cannot be
        if effect.helps:
            return "memory"
        return "load" if effect.gain < SUBSTANTIAL else "unknown"

    @property
    def _test(self) -> tuple[Replicate, ...]:
        return self.replicates.test

    def _seen(self) -> tuple[Replicate, ...]:
        """All replicates used so far."""
        sets = self.replicates
        return sets.search if sets.exact else (*sets.search, *sets.test)

    def _effect(
        self, base: Table, other: Table, on: Sequence[Replicate], level: float = CONFIDENCE
    ) -> Effect:
        # On the fresh ones the causes of waiting are drawn too.
        waits = on is self.replicates.report and not self.replicates.exact
        self.trials.run_all([base, other], on, waits=waits)
        first, second = (self.trials.rows(table, on, waits=waits) for table in (base, other))
        return effect_of(first, second, level)


def _suspects(case: ExaminedRun) -> list[_Suspect]:
    """The suspicion of every cause in the registry that has evidence in this run."""
    found = []
    for name in CAUSES:
        cause = CAUSES.get(name)()
        suspicion = cause.suspect(case)
        if suspicion is not None:
            found.append(_Suspect(name, cause, suspicion))
    return found


def _without_help(effect: Effect) -> FindingOutcome:
    """The outcome of a cure that does not help."""
    if effect.trades:
        return "trade"
    if effect.harms:
        return "worse"
    return "unsure" if effect.unsure else "harmless"


def _rank(effect: Effect) -> tuple[bool, float]:
    return effect.helps, effect.gain


def _hurts(case: ExaminedRun) -> bool:
    """Whether requests wait, or are recomputed, by a twentieth or more."""
    return bool(max(case.waits.total, case.recomputed_share) >= SUBSTANTIAL)


def _with_plenty(case: ExaminedRun, table: Table) -> Table:
    """The tables with more memory and sequences than needed."""
    memory = {"kv_cache_bytes": PLENTY * case.simulation.pool.capacity_bytes}
    changes: dict[str, Any] = {"memory": memory}
    limit = case.option(case.scheduler, "max_num_seqs")
    if limit is not None:
        changes["scheduler.max_num_seqs"] = PLENTY * limit
    return Cure(changes, "").put(table)


def _finding(
    suspect: _Suspect,
    cure: Cure | None,
    effect: Effect | None,
    outcome: FindingOutcome,
    on_top: Effect | None = None,
    reason: str | None = None,
) -> CauseFinding:
    cause = suspect.cause
    return CauseFinding(
        suspect.name,
        cause.title,
        cause.resource,
        suspect.suspicion.evidence,
        cure,
        effect,
        outcome,
        on_top,
        reason,
    )
