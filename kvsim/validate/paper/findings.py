"""All experiments, one after the other: what `kvsim validate paper` prints."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvsim.validate.paper import (
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
from kvsim.validate.paper.check import Check
from kvsim.validate.paper.experiment import Means, Setting

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Findings:
    """Every check, and the simulations that the figures are drawn from."""

    setting: Setting
    lengths: str
    checks: tuple[Check, ...]
    figure_2: figure_2.Runs
    beyond: dict[str, Means]
    block_sizes: figure_18b.Curve

    @property
    def held(self) -> list[Check]:
        """Checks with a tolerance."""
        return [check for check in self.checks if check.tolerance is not None]

    @property
    def reported(self) -> list[Check]:
        """Figures without one, each with its reason."""
        return [check for check in self.checks if check.tolerance is None]

    def as_dict(self) -> dict[str, Any]:
        """The JSON answer."""
        return {
            "seed": self.setting.seed,
            "lengths": self.lengths,
            "ok": self.ok,
            "checks": [check.as_dict() for check in self.held],
            "reported": [check.as_dict() for check in self.reported],
        }

    @property
    def ok(self) -> bool:
        """Whether every check is within its tolerance."""
        return all(check.ok for check in self.checks)


def validate_paper(
    seed: int = 0,
    lengths_file: Path | None = None,
    *,
    progress: Progress = lambda what: None,
) -> Findings:
    """Run everything. seed: of every stream.

    lengths_file: ShareGPT's lengths as recorded, in place of the grids. progress: called with the
    name of each experiment as it starts. Raises InputError for a file that cannot be used.
    """
    sharegpt = lengths.sharegpt if lengths_file is None else lengths.recorded(lengths_file)
    setting = Setting(seed, sharegpt)
    found: list[Check] = []

    def take(name: str, checks: Callable[[], Iterator[Check]]) -> None:
        progress(name)
        found.extend(checks())

    progress("figure 2")
    runs = figure_2.simulate(setting)
    found.extend(figure_2.checks(setting, runs))
    take("figure 13", lambda: figure_13.checks(setting))
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
    return Findings(setting, source, tuple(found), runs, others, curve)
