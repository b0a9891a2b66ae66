"""Import objects by the notation "module:name"."""

from importlib import import_module
from typing import Any


def standing_at(place: str) -> Any:
    """Import the class or function at "module:name"; its module is imported on the first call."""
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)
