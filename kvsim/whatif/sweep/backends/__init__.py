"""Where points are run: one file a backend, and its line here."""

from kvsim.plumbing.registry import Registry
from kvsim.whatif.sweep.backends.backend import BackendOptions

__all__ = ["BACKENDS", "BackendOptions"]

BACKENDS: Registry[BackendOptions] = Registry(
    "backend",
    {
        "processes": "kvsim.whatif.sweep.backends.processes:Processes",
        "dask": "kvsim.whatif.sweep.backends.dask:Dask",
        "ray": "kvsim.whatif.sweep.backends.ray:Ray",
    },
)
