"""The effect of a cure: the numbers of the server with it against those without it."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kvsim.report.intervals import CONFIDENCE
from kvsim.whatif.intervals import Ratio
from kvsim.whatif.pairs import more_refused, ratios
from kvsim.whatif.runner import Row
from kvsim.whatif.watch import SUBSTANTIAL

E2E, TTFT, TPOT = "e2e_s.mean", "ttft_s.mean", "tpot_s.mean"
NUMBERS = (E2E, TTFT, TPOT)
# Waiting for the first token breaks a train of thought from about a second on (Nielsen, Usability
# Engineering, 1993, section 5.5): a wait shortened by less is no trouble cured, whatever its share.
FELT_S = 1.0


class Effect(NamedTuple):
    """The effect of a cure. ratios: of NUMBERS, cured against not. hit_points: the rise of prompt
    tokens found, in points. served: requests served that were refused before, as a share of all.
    saved_ttft_s: seconds less of mean TTFT.
    """

    ratios: Mapping[str, Ratio]
    hit_points: float
    served: float
    saved_ttft_s: float

    @property
    def gain(self) -> float:
        """The gain by which cures are ranked: the share of requests newly served, else the share
        saved of the mean end-to-end time.
        """
        if self.served > 0:
            return self.served
        of = self.ratios.get(E2E)
        return 0.0 if of is None else -of.mean

    @property
    def helps(self) -> bool:
        """Whether the effect is useful, beyond chance.

        Requests end a twentieth sooner, or get their first token a twentieth and a second sooner,
        and neither costs the other. Or a twentieth of them is served that was refused. Nobody is
        refused for it.
        """
        if self.served < 0:
            return False
        if self.served >= SUBSTANTIAL:
            return True
        end, first = self.ratios.get(E2E), self.ratios.get(TTFT)
        ends_sooner = _falls(end) and not (_rises(first) and self.saved_ttft_s <= -FELT_S)
        begins_sooner = _falls(first) and self.saved_ttft_s >= FELT_S
        return ends_sooner or (begins_sooner and not (end is not None and end.low > 0))

    @property
    def unsure(self) -> bool:
        """Whether the cure would help if its mean effect were certain."""
        return not self.helps and not self.trades and self.gain >= SUBSTANTIAL

    @property
    def harms(self) -> bool:
        """Whether requests end or begin a twentieth later for it, beyond chance, or are refused."""
        return self.served < 0 or _rises(self.ratios.get(E2E)) or _rises(self.ratios.get(TTFT))

    @property
    def small(self) -> bool:
        """Whether neither latency moves by a twentieth, even by chance."""
        of = (self.ratios.get(E2E), self.ratios.get(TTFT))
        return all(each is None or abs(each.mean) < SUBSTANTIAL for each in of)

    @property
    def trades(self) -> bool:
        """Whether one latency improves at the cost of the other: end-to-end time against time to
        first token.
        """
        return (
            not self.helps
            and self.served >= 0
            and (
                _falls(self.ratios.get(E2E))
                or (_falls(self.ratios.get(TTFT)) and self.saved_ttft_s >= FELT_S)
            )
        )


def _falls(of: Ratio | None) -> bool:
    return of is not None and of.high < 0 and of.mean <= -SUBSTANTIAL


def _rises(of: Ratio | None) -> bool:
    return of is not None and of.low > 0 and of.mean >= SUBSTANTIAL


def effect_of(first: Sequence[Row], second: Sequence[Row], level: float = CONFIDENCE) -> Effect:
    """The effect of the second rows compared with the first, on the same replicates in the same
    order.
    """
    count = len(first)
    hits = sum(_hit_share(b) - _hit_share(a) for a, b in zip(first, second, strict=True))
    submitted = sum(int(row["requests.submitted"]) for row in first)
    waits = [(row[TTFT], other[TTFT]) for row, other in zip(first, second, strict=True)]
    saved = sum(a - b for a, b in waits if a is not None and b is not None)
    return Effect(
        ratios(first, second, NUMBERS, level),
        100 * hits / count,
        -more_refused(first, second) / submitted if submitted else 0.0,
        saved / count,
    )


def _hit_share(row: Row) -> float:
    asked = row["prefix_cache.query_tokens"]
    return row["prefix_cache.hit_tokens"] / asked if asked else 0.0
