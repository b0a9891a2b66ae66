"""All that a session has, in one archive that is small enough to be brought home."""

import tarfile
from pathlib import Path
from typing import NamedTuple

from kvsim.plumbing.errors import InputError
from kvsim.plumbing.writing import replace_file

MOST_BYTES = 16 << 20  # of the archive
SITE = "site-packages"  # what came along; it does not go back


class Packed(NamedTuple):
    """An archive: its files, its bytes, and the names of files that it had no room for."""

    files: int
    num_bytes: int
    left_out: tuple[str, ...]


def pack(out: Path, archive: Path, most_bytes: int = MOST_BYTES) -> Packed:
    """Everything in a session's folder, whole or not at all. Where that is more than `most_bytes`,
    the largest files stay out, one after the other.
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
    """The files of an archive into a folder; InputError where it is none."""
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
