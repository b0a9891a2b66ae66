"""Whose file is this: by its content, or as named (`FORMAT=PATH`)."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from kvsim.interchange.description import Description
from kvsim.interchange.merge import Read
from kvsim.interchange.sources import SOURCES
from kvsim.interchange.sources.source import Sniffed, look
from kvsim.plumbing.errors import InputError

_COMMAND = ("vllm ", "python ", "docker ")


def read_sources(named: Sequence[str], notes: list[str]) -> list[Read]:
    """Every source read. An argument is a path, FORMAT=PATH, or a command line itself.

    A folder that no format claims stands for the files in it; those that none knows are noted.
    InputError for a file, named by itself, that no format knows.
    """
    reads = []
    for argument in named:
        form, path = _split(argument)
        source = path if isinstance(path, Sniffed) else look(path)
        if form is not None:
            reads.append(_read(source, form))
        elif source.is_folder and _known(source) is None:
            reads.extend(_inside(source.path, notes))
        else:
            reads.append(_read(source, _known(source) or _unknown(source)))
    return reads


def _split(argument: str) -> tuple[str | None, "Path | Sniffed"]:
    """(the format if it is named, the source)."""
    path = Path(argument)
    if argument.startswith(_COMMAND) and not path.exists():
        data = argument.encode()
        return "vllm-command", Sniffed(Path("the command line"), data, argument, None, [])
    head, equals, rest = argument.partition("=")
    if equals and head in SOURCES and not path.exists():
        return head, Path(rest)
    if not path.exists():
        raise InputError("no such file or folder", where=argument)
    return None, path


def _known(source: Sniffed) -> str | None:
    return next((name for name in SOURCES if SOURCES.get(name).sniff(source)), None)


def _unknown(source: Sniffed) -> str:
    if source.data.lstrip()[:1] in (b"{", b"[") and source.document is None and not source.records:
        raise InputError("JSON that ends too early, or is none", where=str(source.path))
    raise InputError(
        "no format that kvsim imports",
        where=str(source.path),
        remedy=f"name one, FORMAT={source.path}: {', '.join(SOURCES)}",
    )


def _inside(folder: Path, notes: list[str]) -> Iterator[Read]:
    """The files of a folder that a format knows."""
    unknown = []
    found = False
    for path in sorted(folder.iterdir()):
        if not path.is_file() or path.name.startswith("."):
            continue
        source = look(path)
        form = _known(source)
        if form is None:
            unknown.append(path.name)
        else:
            found = True
            yield _read(source, form)
    if not found:
        raise InputError("a folder without a file that kvsim imports", where=str(folder))
    if unknown:
        notes.append(f"{folder.name}: not known, and left aside: {', '.join(unknown)}")


def _read(source: Sniffed, form: str) -> Read:
    cls = SOURCES.get(form)
    try:
        description: Description = cls.read(source)
    except (StopIteration, KeyError, IndexError, TypeError, ValueError) as fault:
        # What the format takes for granted is not there: the file is of another kind.
        raise InputError(
            f"not {cls.what}, or a damaged one", where=str(source.path), value=fault
        ) from None
    return Read(source.name, form, cls.rank, description)
