"""kvsim: what happens to GPU KV memory when these requests arrive, under this allocator.

result = kvsim.simulate("chat")
result.table()                # a row a run, every number of its summary
result["paged"].memory        # the ledger over time, a pandas table
kvsim.figure(result, "ttft")  # a figure of the report, as plotly's
with kvsim.progress() as moved:
    kvsim.simulate("azure-conv", progress=moved)    # tells every five seconds how far it is
"""

from typing import TYPE_CHECKING, Any

from kvsim import compiled, version

if TYPE_CHECKING:
    from kvsim.commands.progress import progress
    from kvsim.report.one_figure import figure
    from kvsim.request import Request, Stream
    from kvsim.results.result import Result, Run
    from kvsim.scenario import Scenario
    from kvsim.simulation import simulate

__version__ = version.VERSION
COMPILED = compiled.settle()
_HOMES = {
    "Request": "kvsim.request",
    "Result": "kvsim.results.result",
    "Run": "kvsim.results.result",
    "Scenario": "kvsim.scenario",
    "Stream": "kvsim.request",
    "figure": "kvsim.report.one_figure",
    "progress": "kvsim.commands.progress",
    "simulate": "kvsim.simulation",
}
__all__ = [
    "Request",
    "Result",
    "Run",
    "Scenario",
    "Stream",
    "__version__",
    "figure",
    "progress",
    "simulate",
]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first accessed: `kvsim --help` imports none."""
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'kvsim' has no attribute {name!r}")


def __dir__() -> list[str]:
    """The public names, imported or not, for tab completion in an interpreter."""
    return __all__
