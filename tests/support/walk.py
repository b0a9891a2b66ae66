"""The files that a reader must open to follow one step: those of kvsim with functions that run
while an engine plans and commits the step.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import kvsim
from kvsim.engine.engine import Engine
from kvsim.engine.plan import Plan
from kvsim.scenario import Scenario
from kvsim.simulation import Simulation

PACKAGE = str(Path(kvsim.__file__).parent)


class Walk:
    """Steps of an engine that runs interpreted, and the files each ran through.

    steps: of each, whether it admitted a sequence with a prefix hit, whether nothing but the batch
    decoded in it, and its files.
    """

    def __init__(self) -> None:
        self.steps: list[tuple[bool, bool, frozenset[str]]] = []
        self._files: set[str] = set()
        self._plan, self._commit = Engine.plan, Engine.commit

    def __enter__(self) -> "Walk":
        walk = self

        def plan(engine: Engine) -> Plan:
            walk._files = set()
            return walk._follow(walk._plan, engine)

        def commit(engine: Engine, plan: Plan, steps: int) -> None:
            walk._follow(walk._commit, engine, plan, steps)
            hits = any(cached for _, cached, resumed in plan.admitted if not resumed)
            decodes = not plan.chunks and plan.num_decode > 0 and steps == 1
            walk.steps.append((hits, decodes, frozenset(walk._files)))

        Engine.plan, Engine.commit = plan, commit  # type: ignore[method-assign]
        return self

    def __exit__(self, *error: object) -> None:
        Engine.plan, Engine.commit = self._plan, self._commit  # type: ignore[method-assign]

    def _follow(self, function: Callable[..., Any], *arguments: Any) -> Any:
        sys.setprofile(self._called)
        try:
            return function(*arguments)
        finally:
            sys.setprofile(None)

    def _called(self, frame: FrameType, event: str, argument: Any) -> None:
        name = frame.f_code.co_filename
        if event == "call" and name.startswith(PACKAGE):
            self._files.add(name.removeprefix(PACKAGE + "/"))

    def fewest(self, *, hits: bool) -> frozenset[str]:
        """Files of the step that runs through the fewest: of the steps that admit a request with a
        hit, or of those that only decode.
        """
        found = [files for hit, decodes, files in self.steps if (hit if hits else decodes)]
        return min(found, key=len)


def walk(table: dict[str, Any], *, watched: bool) -> Walk:
    """Run the scenario in single steps; records the files called. watched: with block addresses."""
    with Walk() as found:
        Simulation(Scenario.from_table({**table, "max_steps": 1})).result(addresses=watched)
    return found
