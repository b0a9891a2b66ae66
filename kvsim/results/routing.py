"""Summarise the router's decisions in a fleet."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

from kvsim.results.summary_part import Count, SummaryPart


class RoutedTo(NamedTuple):
    """One routed request. best_tokens: prompt tokens cached by the replica with the longest match,
    chosen_tokens: by the chosen replica; None unless regret is measured.
    """

    time_ps: int
    id: str
    replica: int
    why: str
    chosen_tokens: int | None = None
    best_tokens: int | None = None


@dataclass(frozen=True, eq=False, repr=False)
class WavesSummary(SummaryPart):
    """DP lockstep: waves, steps of all replicas together, and dummy steps of replicas without
    work.
    """

    waves: Count
    steps: Count
    dummy_steps: Count


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class RoutingSummary(SummaryPart):
    """Numbers of a router's decisions.

    decisions: number of requests decided by each of its rules. regret_tokens: prompt tokens that
    the best replica had cached and the chosen one had not; None if regret was not measured. waves:
    of replicas in DP lockstep; None without lockstep.
    """

    router: str
    decisions: dict[str, Count]
    regret_tokens: Count | None = None
    waves: WavesSummary | None = None

    @classmethod
    def of(cls, router: str, routed: Sequence[RoutedTo]) -> Self:
        """Count the decisions of a router of this kind."""
        asked = [each for each in routed if each.best_tokens is not None]
        regret = sum((each.best_tokens or 0) - (each.chosen_tokens or 0) for each in asked)
        return cls(
            router=router,
            decisions=dict(Counter(each.why for each in routed)),
            regret_tokens=regret if asked else None,
        )

    @classmethod
    def together(cls, parts: Sequence[Self]) -> Self:
        """Sum the numbers of the routers of several cells."""
        decisions: Counter[str] = Counter()
        for each in parts:
            decisions.update(each.decisions)
        asked = [each.regret_tokens for each in parts if each.regret_tokens is not None]
        waves = [each.waves for each in parts if each.waves is not None]
        return cls(
            router=parts[0].router,
            decisions=dict(decisions),
            regret_tokens=sum(asked) if asked else None,
            waves=WavesSummary(
                sum(each.waves for each in waves),
                sum(each.steps for each in waves),
                sum(each.dummy_steps for each in waves),
            )
            if waves
            else None,
        )
