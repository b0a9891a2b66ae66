"""The catalogue of public traces: where each is, its licence, its sha256.

Files are in one folder (KVSIM_DATA_DIR, or the user's cache folder) under their original names. A
file that exists is used without any network; a missing one is downloaded when a scenario or command
names it.
"""

import os
import sys
from functools import cache
from hashlib import file_digest
from importlib.resources import files
from pathlib import Path

from pydantic import PositiveInt

from kvsim.plumbing.errors import InputError
from kvsim.plumbing.extras import need
from kvsim.plumbing.options import Options
from kvsim.plumbing.reading.toml_text import loads


class TraceEntry(Options):
    """One public trace. rows: requests in it. sha256_source: source of the checksum, if not
    measured here.
    """

    name: str
    url: str
    source: str
    licence: str
    rows: PositiveInt
    sha256: str
    format: str
    sha256_source: str | None = None

    @property
    def file_name(self) -> str:
        """The original name of the file."""
        return self.url.rpartition("/")[2]

    @property
    def path(self) -> Path:
        """The path of the file, downloaded or not."""
        return data_dir() / self.file_name


def data_dir() -> Path:
    """KVSIM_DATA_DIR, or kvsim's folder in the user's cache."""
    given = os.environ.get("KVSIM_DATA_DIR")
    if given:
        return Path(given).expanduser()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "kvsim"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kvsim"


@cache
def entries() -> dict[str, TraceEntry]:
    """The catalogue by name."""
    text = files("kvsim.workload").joinpath("catalogue.toml").read_text(encoding="utf-8")
    table = loads(text)
    return {name: TraceEntry(name=name, **fields) for name, fields in table.items()}


def entry(name: str) -> TraceEntry:
    """The entry of that name; the InputError for an unknown name lists all names."""
    if name not in entries():
        raise InputError(
            "no such trace in the catalogue",
            value=repr(name),
            remedy=f"known: {', '.join(entries())}",
        )
    return entries()[name]


def locate(name: str) -> Path:
    """The file of a catalogued trace, checked by sha256; downloaded first if it is missing."""
    wanted = entry(name)
    path = wanted.path
    if not path.exists():
        _download(wanted)
    found = _sha256(path)
    if found != wanted.sha256:
        raise InputError(
            f"the file is not {name}: its sha256 differs",
            where=str(path),
            value=found,
            limit=wanted.sha256,
            remedy="move it away to have it downloaded, or name it by path",
        )
    return path


def find(file_or_name: str) -> Path:
    """The file at a path if it exists, else the catalogued trace of that name."""
    path = Path(file_or_name)
    if path.exists():
        return path
    if file_or_name in entries():
        return locate(file_or_name)
    raise InputError(
        "neither a file nor a trace in the catalogue",
        value=repr(file_or_name),
        remedy=f"catalogue: {', '.join(entries())}",
    )


def _download(wanted: TraceEntry) -> None:
    """Download a trace to the data folder: under a temporary name, renamed once its sha256 is
    verified.
    """
    need("pooch", where=wanted.name, otherwise=f"put the file at {wanted.path}")
    import pooch  # brings the network libraries along: only where they are needed
    import requests

    pooch.get_logger().setLevel("WARNING")
    try:
        pooch.retrieve(
            wanted.url,
            known_hash=f"sha256:{wanted.sha256}",
            fname=wanted.file_name,
            path=wanted.path.parent,
        )
    except requests.RequestException as error:
        raise InputError(
            f"cannot download {wanted.name} ({type(error).__name__})",
            where=wanted.url,
            remedy=f"check the network, or put the file at {wanted.path}",
        ) from None
    except ValueError:
        raise InputError(
            f"the download is not {wanted.name}: its sha256 differs",
            where=wanted.url,
            limit=wanted.sha256,
        ) from None
    except OSError as error:
        raise InputError(
            f"cannot keep {wanted.name}: {error.strerror}", where=str(wanted.path)
        ) from None


def _sha256(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise InputError(f"cannot read it: {error.strerror}", where=str(path)) from None
