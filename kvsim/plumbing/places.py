"""The object at a place written "module:name"."""

from importlib import import_module
from typing import Any


def standing_at(place: str) -> Any:
    """The class or function there; its module is imported when it is first asked for."""
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)
