"""Write files completely or not at all: under a temporary name in the same folder, then renamed.

A folder lock serialises the renames of several processes, so all final files come from one process.
The last file marks the set as complete. The old copy of that file is removed first, and the new one
is renamed last. So a process killed in between leaves no mark on a mixture. The next process
removes temporary files of a killed one.
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
    """Raise InputError if `folder` cannot be made or written, before a long computation begins.

    A temporary file is really written there, or in the nearest existing parent folder, and deleted.
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
    """Raise InputError if no file can be written at `path`, before a long computation begins."""
    if path.is_dir():
        raise InputError("a folder, where a file is meant", where=str(path))
    check_writable(path.parent)


def replace_files(folder: Path, files: Mapping[str, Writer]) -> None:
    """Write all files ({name: function that writes it to a path}); the last one marks the set as
    complete.

    InputError if the folder cannot be made or written; then no new file is left.
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
    """Write one file completely or not at all; InputError if it cannot be written."""
    if path.is_dir():
        raise InputError("a folder, where a file is meant", where=str(path))
    replace_files(path.parent, {path.name: save})


def write_text(path: Path, text: str) -> None:
    """Write a text file completely or not at all; InputError if it cannot be written."""
    replace_file(path, text_writer(text))


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write a file of lines completely or not at all; InputError if it cannot be written."""
    replace_file(path, lines_writer(f"{line}\n" for line in lines))


def lines_writer(lines: Iterable[str]) -> Writer:
    """A function that writes the lines, with line ends, to a path one after the other."""

    def save(path: Path) -> None:
        with path.open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(lines)

    return save


def text_writer(text: str) -> Writer:
    """A function that writes the text to a path, with its line ends unchanged."""
    return lambda path: path.write_text(text, encoding="utf-8", newline="\n")


def _is_special(path: Path) -> bool:
    """Whether the path is a pipe or a device, which is written to directly and never replaced."""
    try:
        return not stat.S_ISREG(path.stat().st_mode)
    except FileNotFoundError:
        return False


def _flush(path: Path) -> None:
    """Force the file's content to disk before it is renamed."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _clear(folder: Path, names: Iterable[str]) -> None:
    """Remove temporary files left by processes that no longer run."""
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
    """A context that holds a lock on the folder, where the system supports it."""
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
