"""The tour: why paged KV memory won, in seven stops; each is a scenario that is simulated when
opened.

A stop is a TOML file in this folder, with texts and changes to the tables of `common.toml`,
registered here by one line.
"""

from importlib.resources import files
from typing import Any, NamedTuple

from kvsim.plumbing.reading.toml_text import loads

STOPS = (
    "no-cache",
    "largest-buffer",
    "doubling",
    "holes",
    "blocks",
    "sharing",
    "copy-on-write",
)


class Try(NamedTuple):
    """A suggestion at a stop: a text and the keys it sets."""

    label: str
    settings: tuple[str, ...]


class TourStop(NamedTuple):
    """Content of a stop: its title, paragraphs, where to look, and suggestions to try."""

    name: str
    title: str
    text: tuple[str, ...]
    look: str
    tries: tuple[Try, ...]


def find_stop(name: str) -> TourStop:
    """The stop with this name."""
    stop = _read(name)["stop"]
    tries = tuple(Try(each["label"], tuple(each["set"])) for each in stop.get("try", ()))
    return TourStop(name, stop["title"], tuple(stop["text"]), stop["look"], tries)


def stop_tables(name: str) -> dict[str, Any]:
    """The stop's scenario: the common tables, some replaced by the stop's own."""
    own = _read(name)
    del own["stop"]
    return _read("common") | own


def _read(name: str) -> dict[str, Any]:
    return loads((files("kvsim.explore.tour") / f"{name}.toml").read_text(encoding="utf-8"))
