"""A source's ledger: which entries it has, and which of them a reader used. Unused ones are
reported.

Readers get keys through `Fields`, samples through `metrics`, columns through `columns_of` and flags
through `CommandSource`, all of which write to the ledger. Lines of logs go through `left_lines`.
Unused entries are listed in two classes: those that may change memory or time, and the rest. Only
names are stored, never values.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, get_args

FLAGS: Literal["flags of other commands"] = "flags of other commands"
VARIABLES: Literal["variables of other commands"] = "variables of other commands"
Entry = Literal[
    "keys",
    "metrics",
    "labels",
    "columns",
    "options",
    "flags of other commands",
    "variables of other commands",
]
_MATTERS = re.compile(
    r"cache|memory|mem_|_mem|block|quant|dtype|parallel|draft|specul|spec_dec|offload|swap|lora|"
    r"kv_|_kv|prefill|chunk|concurren|batch|max_num|max_seq|max_model|context_len|gpu|attention|"
    r"graph|sched|preempt|evict|retract|expert|moe|sliding|mamba|window|dp_|tp_|pp_|ep_|page|"
    r"burst|rate|duration|tokens|queue|wait|running|disagg|transfer|tier|prefix"
)
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_MOST_LINES = 40  # kinds of lines that are named
_LOOKED_AT = 2048  # characters of a line
_LINE = 72  # characters of a line that are shown
_DIGITS = re.compile(r"0x[0-9a-fA-F]+|[0-9a-f]{8,}(?:-[0-9a-f]{4,})*|\d+(?:[.,:]\d+)*")
_TEXTS = re.compile(
    r"'[^']*'|\"[^\"]*\"|https?://\S+|\S{0,200}[/\\]\S{0,400}|\S{33,}|\b(?:sk|hf|ghp|xox)[-_]\S+"
)
_PREFIX = re.compile(
    r"^(?:\x1b\[[0-9;]*m|\([\w =]{1,80}\)|\[?\d{4}-\d\d-\d\d[ T][\d:.,]+\w*(?: \w+)?\]?|"
    r"(?:DEBUG|INFO|WARNING|ERROR|CRITICAL)\b:?|\d\d-\d\d \d\d:\d\d:\d\d|\[[\w./]{1,80}:\d{1,6}\]|"
    r"\[\w{1,40} pid=\d{1,12}\]|[\w.]{1,64}\s{1,8}\||[\s:|-])+"
)
_GOES_ON = re.compile(r"^(?:    |  File )|^Traceback |^[#`$>]")  # of a line before it, or a comment
_ENGINES = re.compile(r"[\d:]{5}|INFO|WARNING|ERROR|pid=")
_OF_MEMORY = re.compile(
    r"GiB|MiB|\bGB\b|\bMB\b|memory|\bKV\b|cache|block|\btokens?\b|batch|sequence|quant|prefill|"
    r"specul|draft|graph|attention|offload|swap|parallel|expert|mamba|lora|chunk|retract|preempt",
    re.IGNORECASE,
)


class SourceLedger:
    """The entries of one source and the used ones, by kind of entry and place."""

    def __init__(self) -> None:
        self._there: dict[tuple[Entry, str], set[str]] = defaultdict(set)
        self._taken: dict[tuple[Entry, str], set[str]] = defaultdict(set)

    def there(self, kind: Entry, place: str, names: Iterable[str]) -> None:
        """Record that entries with these names exist at this place."""
        self._there[kind, place].update(names)

    def take(self, kind: Entry, place: str, name: str) -> None:
        """Record that a reader used the entry `name` at this place."""
        self._taken[kind, place].add(name)

    def left(self, kind: Entry) -> Iterator[str]:
        """The unused entries of a kind, as PLACE.NAME."""
        for (its_kind, place), names in self._there.items():
            if its_kind == kind:
                for name in sorted(names - self._taken[kind, place]):
                    yield f"{place}.{name}" if place else name

    def notes(self, harmless: re.Pattern[str] | None) -> list[str]:
        """Notes on unused entries, by kind and class. Entries that match `harmless` are left out,
        since they do not affect memory or time.
        """
        found = []
        for kind in get_args(Entry):
            left = [each for each in self.left(kind) if not (harmless and harmless.search(each))]
            matters = [each for each in left if _matters(each)]
            rest = [each for each in left if not _matters(each)]
            if matters:
                listed = ", ".join(matters)
                found.append(f"{kind} that may change memory or time, and are not read: {listed}")
            if rest:
                found.append(f"{kind} that are not read: {', '.join(rest)}")
        return found


def _matters(name: str) -> bool:
    last = _CAMEL.sub("_", name.rpartition(".")[2]).lower().replace("-", "_")
    return _MATTERS.search(last) is not None


def left_lines(
    lines: Iterable[str], read: Sequence[re.Pattern[str]], harmless: Sequence[re.Pattern[str]]
) -> list[str]:
    """Notes on log lines that match neither a reader's pattern nor a harmless one.

    Lines that differ only in numbers and names are counted as one kind.
    """
    kinds: dict[str, tuple[str, int]] = {}
    for line in lines:
        kind = _DIGITS.sub("#", line)
        if kind in kinds:
            kinds[kind] = kinds[kind][0], kinds[kind][1] + 1
        else:
            kinds[kind] = line, 1
    said: dict[str, int] = {}
    going_on = 0
    for line, count in kinds.values():
        going_on += count if _GOES_ON.match(line) else 0
        bare = _PREFIX.sub("", line)
        if (
            bare.strip()
            and not _GOES_ON.match(line)
            and not any(each.search(line) for each in read)
            and not any(each.search(bare) for each in harmless)
        ):
            text = _said(line)
            if text:
                said[text] = said.get(text, 0) + count
    matters = [text for text in said if _OF_MEMORY.search(text)]
    rest = [text for text in said if not _OF_MEMORY.search(text)]
    notes = []
    for what, texts in (
        ("lines that may change memory or time, and are not read", matters),
        ("lines that are not read", rest),
    ):
        if texts:
            named = "; ".join(
                f"`{text}`" + (f" ({said[text]:,})" if said[text] > 1 else "")
                for text in texts[:_MOST_LINES]
            )
            more = len(texts) - _MOST_LINES
            notes.append(f"{what}: {named}" + (f"; {more:,} more kinds" if more > 0 else ""))
    if going_on:
        notes.append(f"lines that are indented, comments or of tracebacks, not read: {going_on:,}")
    return notes


def is_log_line(line: str) -> bool:
    """Whether a line begins like an engine's log line, with a time, a level or a process."""
    match = _PREFIX.match(line)
    return (
        match is not None and re.search(r"[\d:]{5}|INFO|WARNING|ERROR|pid=", match[0]) is not None
    )


def _said(line: str) -> str:
    """A line without its prefix, and without text that may be a prompt, a path or a key."""
    text = _TEXTS.sub("...", _PREFIX.sub("", line[:_LOOKED_AT]))
    return _DIGITS.sub("#", text).strip()[:_LINE].rstrip()
