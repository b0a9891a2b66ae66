"""Runs all experiments for `kvsim validate paper`."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evidence.paper import (
    beyond,
    doubling_cost,
    figure_2,
    figure_13,
    figure_15,
    figure_18b,
    lengths,
    rates,
    vattention,
)
from evidence.paper.check import Check
from evidence.paper.experiment import STREAMS, Means, Setting
from evidence.paper.one_draw import Draw
from kvsim.plumbing.errors import InputError

Progress = Callable[[str], None]
PARTS = 8  # experiments, each of which is named as it starts
LEAST_STREAMS = 12  # more than the free cells of figure 2, with some to estimate a spread from


@dataclass(frozen=True)
class PaperFindings:
    """Every check, and the simulations from which the figures are drawn."""

    setting: Setting
    lengths: str
    checks: tuple[Check, ...]
    draws: tuple[Draw, ...]
    figure_2: figure_2.Runs
    figure_13: figure_13.Runs
    beyond: dict[str, Means]
    block_sizes: figure_18b.Curve

    @property
    def held(self) -> list[Check]:
        """The checks with a tolerance."""
        return [check for check in self.checks if check.tolerance is not None]

    @property
    def reported(self) -> list[Check]:
        """The checks without a tolerance, each with its reason."""
        return [check for check in self.checks if check.tolerance is None]

    def as_dict(self) -> dict[str, Any]:
        """The answer for `--json`."""
        return {
            "seed": self.setting.seed,
            "lengths": self.lengths,
            "streams": self.setting.streams,
            "ok": self.ok,
            "draws": [draw.as_dict() for draw in self.draws],
            "checks": [check.as_dict() for check in self.held],
            "reported": [check.as_dict() for check in self.reported],
        }

    @property
    def ok(self) -> bool:
        """Whether every check is within its tolerance and the paper's trace passes `one_draw`."""
        return all(check.ok for check in self.checks) and all(draw.ok for draw in self.draws)


def validate_paper(
    seed: int = 0,
    lengths_file: Path | None = None,
    streams: int = STREAMS,
    *,
    progress: Progress = lambda what: None,
) -> PaperFindings:
    """Run all experiments. seed: seed of the first stream. streams: number of streams, with
    consecutive seeds.

    lengths_file: recorded lengths of ShareGPT, instead of the shipped quantile grids. progress:
    called with the name of each experiment as it starts. Raises InputError for an unusable file,
    and for fewer streams than the joint test needs.
    """
    sharegpt = lengths.sharegpt if lengths_file is None else lengths.recorded(lengths_file)
    if streams < LEAST_STREAMS:
        raise InputError(
            "too few streams for a joint test",
            where="--streams",
            value=streams,
            limit=LEAST_STREAMS,
        )
    setting = Setting(seed, sharegpt, streams)
    found: list[Check] = []

    def take(name: str, checks: Callable[[], Iterator[Check]]) -> None:
        progress(name)
        found.extend(checks())

    progress("figure 2")
    runs = figure_2.simulate(setting)
    found.extend(figure_2.checks(runs))
    progress("figure 13")
    batches = figure_13.simulate(setting)
    found.extend(figure_13.checks(setting, batches))
    take("section 6.2", lambda: rates.checks(setting))
    take("figure 15", lambda: figure_15.checks(setting))
    progress("figure 18b")
    curve = figure_18b.sharegpt_curve(setting)
    found.extend(figure_18b.checks(setting, curve))
    take("vAttention", vattention.checks)
    take("doubling", doubling_cost.checks)
    progress("beyond the paper")
    others = beyond.simulate(setting)
    found.extend(beyond.checks(others))
    source = "the shipped grids" if lengths_file is None else lengths_file.name
    draws = (figure_2.draw(runs), figure_13.draw(batches))
    return PaperFindings(setting, source, tuple(found), draws, runs, batches, others, curve)
