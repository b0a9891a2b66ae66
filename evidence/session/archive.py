"""Packs all files of a session into one archive of limited size, and unpacks it."""

import tarfile
from pathlib import Path
from typing import NamedTuple

from kvsim.plumbing.errors import InputError
from kvsim.plumbing.writing import replace_file

MOST_BYTES = 16 << 20  # of the archive
SITE = "site-packages"  # what came along; it does not go back


class Packed(NamedTuple):
    """A written archive: number of files, bytes, and names of the files left out for their size."""

    files: int
    num_bytes: int
    left_out: tuple[str, ...]


def pack(out: Path, archive: Path, most_bytes: int = MOST_BYTES) -> Packed:
    """Write an archive of a session's folder, complete or not at all. If it exceeds `most_bytes`,
    the largest files are left out, one after the other.
    """
    files = sorted(
        (path for path in out.rglob("*") if path.is_file() and _goes_home(path.relative_to(out))),
        key=lambda path: (path.stat().st_size, path),
    )
    left_out = list[str]()
    while True:
        replace_file(archive, lambda path: _write(path, out, files))
        num_bytes = archive.stat().st_size
        if num_bytes <= most_bytes or not files:
            return Packed(len(files), num_bytes, tuple(left_out))
        left_out.append(files.pop().relative_to(out).as_posix())


def unpack(archive: Path, out: Path) -> None:
    """Extract an archive into a folder; InputError if the file is no archive."""
    try:
        with tarfile.open(archive) as packed:
            packed.extractall(out, filter="data")
    except (OSError, EOFError, tarfile.TarError) as error:
        raise InputError("no archive of a session", where=str(archive), value=error) from None


def _goes_home(path: Path) -> bool:
    return path.parts[0] != SITE and not path.name.startswith(".")


def _write(path: Path, out: Path, files: list[Path]) -> None:
    with tarfile.open(path, "w:xz") as packed:
        for file in files:
            packed.add(file, file.relative_to(out).as_posix(), recursive=False)
