"""The promise of every control: widgets for some keys of a scenario."""

from abc import abstractmethod
from typing import Any, ClassVar

from dash.development.base_component import Component

from kvsim.plumbing.options import Options


class Control(Options):
    """title: over its widgets. is_open: whether they are seen at first."""

    title: ClassVar[str]
    is_open: ClassVar[bool] = False

    @abstractmethod
    def widgets(self, table: dict[str, Any]) -> list[Component]:
        """Its widgets, as a scenario's tables have their keys; none where it has nothing to turn.
        Mutates nothing.
        """
        raise NotImplementedError(type(self).__name__)  # every subclass overrides this

    def chosen(self, table: dict[str, Any], key: str, value: Any) -> bool:
        """Do what `key = value` means where setting the key alone would not do; whether it did.
        Mutates `table`.
        """
        return False
