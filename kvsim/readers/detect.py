"""Find the reader for each file: by content, or as the user says (`FORMAT=PATH`)."""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from kvsim.plumbing.errors import InputError
from kvsim.readers import READERS, pastes
from kvsim.readers.description import Description
from kvsim.readers.nearest import nearest
from kvsim.readers.parsing.command_source import CommandSource
from kvsim.readers.parsing.ledger import FLAGS, SourceLedger
from kvsim.readers.parsing.manifest_replicas import with_replicas
from kvsim.readers.parsing.raw_flags import flags_in
from kvsim.readers.reader import ASKED_FOR, Reader, RecordedRuns, Sniffed, Source, look

if TYPE_CHECKING:
    from kvsim.observed.trial import Trial

_COMMAND = (
    *("vllm ", "sglang ", "trtllm-serve ", "python ", "python3 ", "docker ", "podman "),
    *("llama-server ", "./llama-server ", "OLLAMA_"),
)
_RESULTS = ("vllm-bench", "guidellm", "bench-text")  # files that may hold several
Kind = TypeVar("Kind", bound=Reader)


class Read(NamedTuple):
    """One source after reading. name is for people; format is the reader's name in READERS."""

    name: str
    format: str
    rank: int
    description: Description


def readers(kind: type[Kind]) -> dict[str, type[Kind]]:
    """The readers of a kind (`Source` or `RecordedRuns`) by name, in the order in which they are
    tried.
    """
    return dict(_loaded(kind))


def recognised(source: Sniffed, kind: type[Reader]) -> str | None:
    """The name of the first reader of a kind that recognises the source; later ones are not
    imported.
    """
    return next((name for name, cls in _loaded(kind) if cls.sniff(source)), None)


def _loaded(kind: type[Kind]) -> Iterator[tuple[str, type[Kind]]]:
    for name in READERS:
        cls = READERS.get(name)
        if issubclass(cls, kind):
            yield name, cls


def read_sources(
    named: Sequence[str], notes: list[str], variables: Mapping[str, str] | None = None
) -> list[Read]:
    """Read every source. An argument is a path, FORMAT=PATH, or a command line.

    If no reader recognises a folder, its files are read one by one, and a note lists unrecognised
    ones. variables are values of shell variables. InputError if a file given by itself is not
    recognised.
    """
    reads: list[Read] = []
    for argument in named:
        form, path = _split(argument)
        source = path if isinstance(path, Sniffed) else look(path)
        source = source._replace(variables=variables or {})
        form = form or recognised(source, Source)
        if form is None and source.is_folder:
            reads.extend(_inside(source, notes))
        else:
            reads.extend(_reads_of(source, form, notes))
    return reads


def _reads_of(source: Sniffed, form: str | None, notes: list[str]) -> Iterator[Read]:
    """Read a file: usually one source, but several for a pasted page with code blocks, or a log
    with its command.
    """
    parts = [(part, recognised(part, Source)) for part in pastes.fenced(source)]
    known = [(part, its_form) for part, its_form in parts if its_form is not None]
    # A template that llama-server logs may hold fences of its own.
    if known and (form != "llama-log" or any(its_form == form for _, its_form in known)):
        yield from _blocks(source, parts, notes)
        return
    form = form or _unknown(source)
    if form in _RESULTS and not source.is_folder:
        for part in pastes.results_in(source):
            yield _read(part, form)
        return
    yield from _servers_of(source, form)


def _blocks(
    page: Sniffed, parts: Sequence[tuple[Sniffed, str | None]], notes: list[str]
) -> Iterator[Read]:
    """Read a page's code blocks. Notes list blocks that are damaged or of no known format, and
    flags outside the blocks that were read.
    """
    ledger = SourceLedger()
    ledger.there(FLAGS, "", flags_in(page.string()))
    reads: list[Read] = []
    faults: list[InputError] = []
    for part, form in parts:
        if form is None:
            continue
        try:
            reads.extend(_with_command(part, form))
        except InputError as fault:
            faults.append(fault)
            continue
        for flag in flags_in(part.string()):
            ledger.take(FLAGS, "", flag)
    if not reads:
        raise faults[0]
    yield from reads
    notes.extend(map(str, faults))
    unknown = [part.name.rpartition(" ")[2] for part, form in parts if form is None]
    if unknown:
        notes.append(f"{page.name}: blocks that kvsim does not read: {', '.join(unknown)}")
    notes.extend(f"{page.name}: {note}" for note in ledger.notes(None))


def _servers_of(source: Sniffed, form: str) -> Iterator[Read]:
    """Read each server that a manifest starts, of any engine, as one source.

    Flags and variables that no server uses are listed in a note on the first source.
    """
    cls = READERS.get(form)
    assert issubclass(cls, Source)
    started = {form: cls.servers(source)}
    if started[form] and issubclass(cls, CommandSource):
        for name, other in _loaded(CommandSource):
            started.setdefault(name, other.servers(source))
    if sum(map(len, started.values())) < 2:
        yield from _with_command(source, form)
        return
    ledger, reads = SourceLedger(), list[Read]()
    for name, servers in started.items():
        for server in servers:
            path = source.path.with_name(f"{source.path.name}, server {len(reads) + 1}")
            reads.append(_read(source._replace(path=path, server=server, ledger=ledger), name))
    left = ledger.notes(cls.harmless)
    first = reads[0].description
    yield reads[0]._replace(description=replace(first, notes=(*first.notes, *left)))
    yield from reads[1:]


def _with_command(source: Sniffed, form: str) -> Iterator[Read]:
    """Read a source. If a log contains its command line, the command is read as another source
    before it.
    """
    command, note = None, tuple[str, ...]()
    if form in pastes.LOGS:
        source, command = pastes.with_its_command(source)
    if command is not None and (its_form := recognised(command, Source)) is not None:
        try:
            yield _read(command, its_form)
        except InputError as fault:
            note = (f"the command in it is not read: {fault}",)
    read = _read(source, form)
    description = replace(read.description, notes=(*read.description.notes, *note))
    yield read._replace(description=description)


def read_runs(folders: Sequence[Path]) -> "Iterator[tuple[str, Trial]]":
    """(folder name, run) for every published run in these folders or their direct subfolders.

    InputError for a folder without a run.
    """
    known = readers(RecordedRuns)
    for folder in folders:
        if not folder.is_dir():
            raise InputError("no such folder", where=str(folder))
        found = False
        for place in (folder, *sorted(path for path in folder.iterdir() if path.is_dir())):
            name = recognised(look(place), RecordedRuns)
            if name is not None:
                found = True
                yield from ((place.name, trial) for trial in known[name].runs(place))
        if not found:
            raise InputError(
                "no recorded runs that kvsim reads",
                where=str(folder),
                remedy=f"kinds: {', '.join(known)}",
            )


def _split(argument: str) -> tuple[str | None, "Path | Sniffed"]:
    """(format, or None if the user gives none; the source) for an argument."""
    path = Path(argument)
    if path.exists():
        return None, path
    head, equals, rest = argument.partition("=")
    if equals and head in readers(Source):
        return head, Path(rest)
    given = Sniffed(Path("the command line"), argument.encode(), argument, None, [])
    form = recognised(given, Source) if " " in argument else None
    if form is None and argument.startswith(_COMMAND):
        form = "vllm-command"
    if form is None:
        raise InputError("no such file or folder", where=argument)
    return form, given


def _unknown(source: Sniffed) -> str:
    if not source.data.strip():
        raise InputError("the file is empty", where=str(source.path))
    if _is_scenario(source.text):
        raise InputError(
            "a scenario of kvsim, and no source of one",
            where=str(source.path),
            remedy=f"kvsim run {source.path}",
        )
    looks_like = nearest(source)
    starts_json = source.data.lstrip()[:1] == b"{" or source.data.lstrip()[:2] in (b"[{", b"[]")
    if starts_json and source.document is None and not source.records:
        raise InputError("JSON that ends too early, or is none", where=str(source.path))
    raise InputError(
        f"no format that kvsim imports{f' ({looks_like})' if looks_like else ''}",
        where=str(source.path),
        remedy=f"if it is of one, name it: FORMAT={source.path} (docs/importing.md lists them)",
    )


def _is_scenario(text: str) -> bool:
    """Whether the text is TOML with the tables of a scenario."""
    try:
        return {"model", "device", "allocator"} <= tomllib.loads(text).keys()
    except tomllib.TOMLDecodeError:
        return False


def _inside(given: Sniffed, notes: list[str]) -> Iterator[Read]:
    """Read all files of a folder that have a known format."""
    folder = given.path
    unknown = []
    found = False
    for path in sorted(folder.iterdir()):
        if not path.is_file() or path.name.startswith("."):
            continue
        source = look(path)._replace(variables=given.variables)
        form = recognised(source, Source)
        if form is None:
            unknown.append(path.name)
        else:
            found = True
            yield from _reads_of(source, form, notes)
    if not found:
        raise InputError("a folder without a file that kvsim imports", where=str(folder))
    if unknown:
        notes.append(f"{folder.name}: kvsim does not read: {', '.join(unknown)}")


def _read(source: Sniffed, form: str) -> Read:
    """Read the source with this reader, and add notes on unread content.

    If the source brings its own ledger, the caller makes these notes.
    """
    cls = READERS.get(form)
    assert issubclass(cls, Source)
    try:
        ledger = source.ledger or SourceLedger()
        description = cls.read(source._replace(ledger=ledger))
    except (StopIteration, KeyError, IndexError, TypeError, ValueError) as fault:
        # What the format takes for granted is not there: the file is of another kind.
        raise InputError(
            f"not {cls.what}, or a damaged one", where=str(source.path), value=str(fault) or None
        ) from None
    left = [] if source.ledger is ledger else ledger.notes(cls.harmless)
    description = replace(description, notes=(*description.notes, *left))
    if cls.rank == ASKED_FOR:
        server = source.server
        own = server.replicas if server else None
        settings, notes = with_replicas(description.settings, source.string(), own)
        if server is not None and description.role is None:
            description = replace(description, role=server.role)
        description = replace(description, settings=settings, notes=(*description.notes, *notes))
    return Read(source.name, form, cls.rank, description)
