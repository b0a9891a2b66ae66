"""Libraries that a plain installation lacks, and the extra (`pip install kvsim[EXTRA]`) with each.

A simulation and its table in the terminal need none of them.
"""

from importlib.util import find_spec

from kvsim.plumbing.errors import InputError

# A library's import name, and the extra of pyproject.toml that installs it.
EXTRAS: dict[str, str] = {
    "dash": "explore",
    "dask": "dask",
    "distributed": "dask",
    "gguf": "gguf",
    "httpx2": "record",
    "huggingface_hub": "hub",
    "jinja2": "report",
    "joblib": "sweep",
    "msgpack": "interchange",
    "pandas": "report",
    "plotly": "report",
    "pooch": "traces",
    "pyarrow": "report",
    "ray": "ray",
    "scipy": "fit",
    "torch": "backend",
}


def need(*libraries: str, where: str | None = None, otherwise: str = "") -> None:
    """Raise InputError with the command that installs a library, unless all of `libraries` are
    installed.

    where is the option or command that needs the libraries. otherwise says what works without them.
    """
    for library in libraries:
        if find_spec(library) is None:
            raise missing(library, where, otherwise)


def missing(library: str, where: str | None = None, otherwise: str = "") -> InputError:
    """The error for a library of EXTRAS that is not installed."""
    remedy = f"pip install 'kvsim[{EXTRAS[library]}]'" + (otherwise and f", or {otherwise}")
    return InputError(f"{library} is not installed", where=where, remedy=remedy)
