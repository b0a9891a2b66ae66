"""The recorded quantities that a simulation of the first part should reproduce.

They are prefill times, gaps between tokens, and tokens produced per tick. The miss of a simulation
is the relative difference of the simulated and the recorded sum. The tenth of the requests with the
largest differences on either side is left out. A request preempted before its first token in only
one of the two says nothing about step times.

The noise of a miss is its standard error by batch means. Requests of one queue wait together, so
batches of neighbouring requests are drawn, not single ones. The noise is at least 0.5 %, since one
more block in the pool already moves a mean by more.
"""

from collections.abc import Iterator
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kvsim.observed.folder import ObservedRun
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.units import PS_PER_S
from kvsim.validate.run.curves import clock_ahead
from kvsim.validate.run.errors import recorded_times, request_times, simulated_times
from kvsim.validate.run.fitting.parts import Parts
from kvsim.validate.run.replay import Replay

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]


LEAST_NOISE = 0.005
BLOCKS = 3
TRIMMED = 0.1


class Aim(NamedTuple):
    """One recorded quantity, as n amounts: one per request or one per tick (`kind`).

    recorded [n] are the amounts. unit [n] is the index of the request or tick. block [n] is the
    part of the run's time that it belongs to, 0 to BLOCKS - 1.
    """

    name: str
    kind: Literal["request", "tick"]
    recorded: Floats
    unit: Indices
    block: Indices

    def miss(self, simulated: Floats, weights: Floats) -> float:
        """Weighted relative difference of simulated and recorded sums; some weight must be
        positive.
        """
        apart = simulated - self.recorded
        kept = self._kept(apart, weights)
        return float((apart * kept).sum() / (self.recorded * kept).sum())

    def _kept(self, apart: Floats, weights: Floats) -> Floats:
        """The weights, set to 0 for the requests with the largest differences on either side."""
        if self.kind == "tick":
            return weights
        order = np.argsort(apart, kind="stable")
        upto = np.cumsum(weights[order])
        low, high = TRIMMED * upto[-1], (1.0 - TRIMMED) * upto[-1]
        kept = np.empty_like(weights)
        kept[order] = np.clip(upto, low, high) - np.clip(upto - weights[order], low, high)
        return kept

    def noise(self, simulated: Floats) -> float:
        """Standard error of the miss over all entries."""
        apart = simulated - self.recorded
        batches = int(len(apart) ** 0.5)
        if batches < 2:
            return LEAST_NOISE
        if self.kind == "request":
            apart = np.clip(apart, *np.quantile(apart, [TRIMMED, 1.0 - TRIMMED]))
        sums = np.array([batch.sum() for batch in np.array_split(apart, batches)])
        error = float(np.std(sums, ddof=1)) * batches**0.5 / float(self.recorded.sum())
        return error if error > LEAST_NOISE else LEAST_NOISE


class Aims:
    """The recorded quantities of a run's first part, without those that are missing or zero in some
    block.

    units counts the requests and the ticks of the first part.
    """

    def __init__(self, run: ObservedRun, parts: Parts) -> None:
        self._run, self._parts = run, parts
        requests = len(parts.first)
        everyone = np.arange(requests)
        blocks = everyone * BLOCKS // requests
        several = np.array([run.rows[index].output_tokens > 1 for index in parts.first])
        rows = [run.rows[index] for index in parts.first]
        self._admitted = all(row.scheduled_s is not None for row in rows)
        recorded = self._by_request(
            [row.scheduled_s or 0.0 for row in run.rows], *recorded_times(run)
        )
        found = []
        for name, amounts in recorded.items():
            who = everyone[several] if name == "tpot" else everyone
            found.append(Aim(name, "request", amounts, who, blocks[who]))
        self._tick_ends, produced = self._ticks()
        self.units = {"request": requests, "tick": len(produced)}
        if len(produced):
            answered = np.array([row.last_token_s for row in rows])
            edges = [answered[np.searchsorted(blocks, block)] for block in range(1, BLOCKS)]
            at = np.searchsorted(edges, self._tick_ends, side="right")
            found.append(Aim("tokens produced", "tick", produced, np.arange(len(produced)), at))
        self.found = [aim for aim in found if self._usable(aim)]
        if not self.found:
            raise InputError("nothing recorded in the part to fit on lasted", where="--fit")

    def _by_request(
        self, scheduled_s: list[float], first_token_s: list[float], last_token_s: list[float]
    ) -> dict[str, Floats]:
        """Times per request: from admission to the first token, and the mean gap between tokens.

        If admissions are not recorded, the first of these is counted from arrival, and then
        includes waiting in the queue.
        """
        which = self._parts.first
        times = request_times(self._run, (first_token_s, last_token_s), which)
        begin = {"ttft": times["ttft_s"]}
        if self._admitted:
            begin = {"prefill": np.array(first_token_s)[which] - np.array(scheduled_s)[which]}
        return begin | {"tpot": times["tpot_s"]}

    def _usable(self, aim: Aim) -> bool:
        sums = np.bincount(aim.block, weights=aim.recorded, minlength=BLOCKS)
        return bool((sums > 0).all())

    def _ticks(self) -> tuple[Floats, Floats]:
        """End times (s, on the requests' clock) of the ticks in the first part, and the tokens
        generated in each.
        """
        ticks = self._run.ticks
        if not ticks or any(tick.gen_throughput is None for tick in ticks):
            return np.zeros(0), np.zeros(0)
        ahead_s = self._run.meta.clock_ahead_s
        ends = np.array([tick.t for tick in ticks])
        ends -= clock_ahead(self._run) if ahead_s is None else ahead_s
        lengths = np.diff(ends, prepend=ends[0] - self._run.meta.tick_seconds)
        produced = lengths * np.array([tick.gen_throughput or 0.0 for tick in ticks])
        inside = ends <= self._parts.end_s
        return ends[inside], produced[inside]

    def simulated(self, replay: Replay) -> list[Floats]:
        """The amounts of each quantity in a simulation of the first part."""
        scheduled_s = [ps / PS_PER_S for ps in replay.scheduled_ps]
        lists = self._by_request(scheduled_s, *simulated_times(replay))
        if self.units["tick"]:
            made = np.array(replay.step_ends_ps) / PS_PER_S
            so_far = np.array([0, *replay.generated])
            at_ends = so_far[np.searchsorted(made, self._tick_ends, side="left")]
            first = self._tick_ends[0] - self._run.meta.tick_seconds
            before = so_far[np.searchsorted(made, first, side="left")]
            lists["tokens produced"] = np.diff(at_ends, prepend=before).astype(float)
        return [lists[aim.name] for aim in self.found]

    def all_weights(self) -> Iterator[Floats]:
        """Weights of 1 for every entry of each quantity."""
        return (np.ones(len(aim.recorded)) for aim in self.found)
