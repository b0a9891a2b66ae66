"""Registries: names of installed packages are found, those of a registry's former name too."""

from importlib import metadata

import pytest

from kvsim.plumbing.registry import Registry
from kvsim.readers import READERS
from kvsim.readers.reader import Reader


def test_entry_points_of_former_names_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert READERS.groups == ("kvsim.reader", "kvsim.source-format", "kvsim.collection")
    log = "kvsim.readers.vllm.log:VllmLog"
    points = [
        metadata.EntryPoint("new", log, "kvsim.reader"),
        metadata.EntryPoint("old", log, "kvsim.collection"),
        metadata.EntryPoint("own", "another:Class", "kvsim.collection"),
        metadata.EntryPoint("other", log, "kvsim.victim"),
    ]
    monkeypatch.setattr(metadata, "entry_points", lambda: metadata.EntryPoints(points))
    registry: Registry[Reader] = Registry("reader", {"own": log}, ("collection",))
    assert list(registry) == ["own", "new", "old"]
    assert {registry.get(name).__name__ for name in registry} == {"VllmLog"}
