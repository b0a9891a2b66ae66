"""Files written whole or not at all: under a temporary name in the same folder, then renamed.

Renames of several files are serialised with those of other processes on the folder, so that the
final files are all of one process. The last file marks the rest as whole. An older one of its name
is removed first, and the new one comes last. So a process killed in between leaves no mark on a
mixture. What a killed process left under temporary names, the next one clears.
"""

import os
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from kvsim.plumbing.errors import InputError

Writer = Callable[[Path], object]
PROBE_BYTES = 1 << 12  # written and taken back, to see that a place takes anything at all


def check_writable(folder: Path) -> None:
    """Raise InputError if `folder` cannot be made or written, before anything costly is done.

    Something is really written where the folder is or would be made, and taken back.
    """
    try:
        place = folder
        while not place.exists():
            place = place.parent
        if not place.is_dir():
            raise InputError("not a folder", where=str(folder), value=str(place))
        with tempfile.TemporaryFile(dir=place) as probe:
            probe.write(bytes(PROBE_BYTES))
    except OSError as error:
        raise InputError("cannot write", where=str(folder), value=error.strerror) from None


def check_file_writable(path: Path) -> None:
    """Raise InputError if no file can be written at `path`, before anything costly is done."""
    if path.is_dir():
        raise InputError("a folder, where a file is meant", where=str(path))
    check_writable(path.parent)


def replace_files(folder: Path, files: Mapping[str, Writer]) -> None:
    """Write every file (name -> its writer), the one that marks the rest as whole last.

    Raises InputError if the folder cannot be made or written; nothing new remains then.
    """
    written: list[tuple[Path, Path]] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _clear(folder, files)
        for name, save in files.items():
            final = folder / name
            if _is_special(final):
                save(final)
                continue
            temporary = folder / f".{name}.{os.getpid()}.tmp"
            written.append((temporary, final))
            save(temporary)
            _flush(temporary)
        with _alone(folder):
            if len(written) > 1:
                written[-1][1].unlink(missing_ok=True)
            for temporary, final in written:
                temporary.replace(final)
    except OSError as error:
        raise InputError("cannot write", where=str(folder), value=error.strerror or error) from None
    except UnicodeEncodeError as error:
        raise InputError(
            "a name that is not UTF-8 text cannot be kept in a file",
            where=str(folder),
            value=ascii(error.object[max(error.start - 20, 0) : error.end]),
            remedy="rename the file or the folder that the scenario names",
        ) from None
    finally:
        for temporary, _ in written:
            with suppress(OSError):
                temporary.unlink()


def replace_file(path: Path, save: Writer) -> None:
    """Write one file whole or not at all; raises InputError if it cannot be written."""
    if path.is_dir():
        raise InputError("a folder, where a file is meant", where=str(path))
    replace_files(path.parent, {path.name: save})


def write_text(path: Path, text: str) -> None:
    """Write one text file whole or not at all; raises InputError if it cannot be written."""
    replace_file(path, text_writer(text))


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write a file of lines whole or not at all; raises InputError if it cannot be written."""
    replace_file(path, lines_writer(f"{line}\n" for line in lines))


def lines_writer(lines: Iterable[str]) -> Writer:
    """A writer of these lines, each with its end, one at a time."""

    def save(path: Path) -> None:
        with path.open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(lines)

    return save


def text_writer(text: str) -> Writer:
    """A writer of this text, line ends as they are."""
    return lambda path: path.write_text(text, encoding="utf-8", newline="\n")


def _is_special(path: Path) -> bool:
    """Whether the path is a pipe or a device, which is written to and never replaced."""
    try:
        return not stat.S_ISREG(path.stat().st_mode)
    except FileNotFoundError:
        return False


def _flush(path: Path) -> None:
    """Have the disk hold the file before its name does."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _clear(folder: Path, names: Iterable[str]) -> None:
    """Remove temporary files of processes that have ended."""
    for name in names:
        for left in folder.glob(f".{name}.*.tmp"):
            number = left.name.removeprefix(f".{name}.").removesuffix(".tmp")
            if number.isdecimal() and not _lives(int(number)):
                with suppress(OSError):
                    left.unlink()


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True
    return True


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """One process at a time, where the system has locks on folders."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # a file system without locks
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
