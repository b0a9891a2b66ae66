"""The control of the seed."""

from typing import Any, ClassVar

from dash.development.base_component import Component

from kvsim.explore.controls.control import Control
from kvsim.explore.widgets import labelled, typed


class Seed(Control):
    """The seed's number field."""

    title: ClassVar[str] = "Seed"

    def widgets(self, table: dict[str, Any]) -> list[Component]:
        return [labelled("seed", typed("seed", table.get("seed"), 0))]
