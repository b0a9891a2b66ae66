"""The interface of every control: widgets for some keys of a scenario."""

from abc import abstractmethod
from typing import Any, ClassVar

from dash.development.base_component import Component

from kvsim.plumbing.options import Options


class Control(Options):
    """A group of widgets. title: heading; is_open: whether the group is expanded at first."""

    title: ClassVar[str]
    is_open: ClassVar[bool] = False

    @abstractmethod
    def widgets(self, table: dict[str, Any]) -> list[Component]:
        """The control's widgets, in the order of a scenario's keys; none if it has nothing to
        change.

        Mutates nothing.
        """
        raise NotImplementedError(type(self).__name__)  # every subclass overrides this

    def chosen(self, table: dict[str, Any], key: str, value: Any) -> bool:
        """Handle `key = value` if more than the key itself must change; returns whether it was
        handled. Mutates `table`.
        """
        return False
