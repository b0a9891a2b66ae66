"""Journal of a connector's actions in each step, to compare with a recording of vLLM."""

from typing import Any


class ConnectorJournal:
    """Entries by field name of the recording, in the order of events."""

    def __init__(self) -> None:
        self._entries: dict[str, list[Any]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._entries.values()))

    def add(self, name: str, entry: Any) -> None:
        """Append an entry to the field `name`."""
        self._entries.setdefault(name, []).append(entry)

    def take(self) -> dict[str, list[Any]]:
        """All entries since the last call."""
        entries, self._entries = self._entries, {}
        return entries

    def take_of(self, name: str) -> list[Any]:
        """The entries of one field since the last call."""
        return self._entries.pop(name, [])
