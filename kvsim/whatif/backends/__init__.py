"""Backends that run tasks: one module each, registered here by one line each."""

from kvsim.plumbing.registry import Registry
from kvsim.whatif.backends.backend import BackendOptions

__all__ = ["BACKENDS", "BackendOptions"]

BACKENDS: Registry[BackendOptions] = Registry(
    "backend",
    {
        "processes": "kvsim.whatif.backends.processes:Processes",
        "dask": "kvsim.whatif.backends.dask:Dask",
        "ray": "kvsim.whatif.backends.ray:Ray",
    },
)
