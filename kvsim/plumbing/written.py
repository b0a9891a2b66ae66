"""Modules as they are written, also where their compiled form runs."""

import sys
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from kvsim.plumbing.errors import InvariantError

SUFFIX = "_as_written"


def written(name: str) -> ModuleType:
    """The module `name` from its source: a class in Python can have its classes as bases, which a
    compiled class forbids unless all its users pay for that. InvariantError without the source.
    """
    module = import_module(name)
    path = Path(str(module.__file__))
    if path.suffix == ".py":
        return module
    twin = name + SUFFIX
    if twin in sys.modules:
        return sys.modules[twin]
    spec = spec_from_file_location(twin, path.parent / f"{name.rpartition('.')[2]}.py")
    if spec is None or spec.loader is None:
        raise InvariantError(f"{name} has no source")
    sys.modules[twin] = made = module_from_spec(spec)
    spec.loader.exec_module(made)
    return made
