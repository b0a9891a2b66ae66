"""Merge several descriptions of one server, and list where they contradict each other.

What the engine prints about itself takes precedence over what its command line asks for, and that
over what a client reports.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from kvsim.interchange.joining import join
from kvsim.plumbing.errors import InputError
from kvsim.readers.description import ClientLoad, Clock, GaugeSeries, Requests, ServerSettings
from kvsim.readers.detect import Read
from kvsim.readers.parsing.shell_words import is_name

# The rank of settings named on the command line, which count before all others.
USER = 4
_CLOSE = 1e-3  # of figures that are printed to two digits
_MODEL_MARKS = ("/", "--")


# What differs between replicas of one kind: the size of the pool.
POOL = (
    *("num_gpu_blocks", "kv_cache_tokens", "kv_cache_bytes", "available_kv_gib"),
    *("weights_gib", "gpu_memory_gib", "free_memory_gib"),
)
_OF_A_SERVER = ("vllm-log", "sglang-log", "trtllm-log", "vllm-metrics", "sglang-metrics")


class Contradiction(NamedTuple):
    """A setting with different values in two sources; the value `kept` is used."""

    what: str
    kept: Any
    kept_from: str
    left: Any
    left_from: str

    def __str__(self) -> str:
        return (
            f"{self.what}: {self.kept} by {self.kept_from} is kept, "
            f"{self.left} by {self.left_from} is not"
        )


@dataclass(frozen=True, slots=True)
class Merged:
    """All descriptions merged into one.

    origins has the source of each setting. gauges_clock is the clock of the gauges; None if
    requests and gauges have no common clock.
    """

    settings: ServerSettings
    origins: dict[str, str]
    requests: Requests | None
    gauges: GaugeSeries | None
    gauges_clock: Clock | None
    load: ClientLoad | None
    contradictions: tuple[Contradiction, ...]
    notes: tuple[str, ...]


def merge(reads: Sequence[Read]) -> Merged:
    """Merge all sources; of two with equal rank the one given first takes precedence."""
    names = [read.name for read in reads]
    reads = [_of_its_file(read, names) for read in reads]
    ordered = sorted(reads, key=lambda read: -read.rank)  # stable: in the order given
    settings, origins, contradictions = _settings(ordered)
    _check_known(reads, origins)
    several = {each.name for each in servers_among(reads)}
    contradictions = [
        each
        for each in contradictions
        if not (each.what in POOL and {each.kept_from, each.left_from} <= several)
    ]
    notes: list[str] = []
    requests = join([(read.name, read.description.requests) for read in reads], notes)
    with_gauges = [read for read in ordered if read.description.gauges is not None]
    with_gauges.sort(key=lambda read: getattr(read.description.gauges, "clock", "") != "unix")
    gauges, clock = None, None
    if with_gauges:
        first = with_gauges[0]
        gauges = first.description.gauges
        assert gauges is not None
        same = first.description.requests is not None
        clock = None if gauges.clock == "own" and not same else gauges.clock
        notes.extend(
            f"the gauges of {read.name} are left out: those of {first.name} are used"
            for read in with_gauges[1:]
        )
    loads = [read.description.load for read in reads if read.description.load is not None]
    return Merged(
        settings,
        origins,
        requests,
        gauges,
        clock,
        loads[0] if loads else None,
        tuple(contradictions),
        tuple(notes),
    )


# What `kvsim import` has an option of its own for.
_OPTIONS = {"model": "--model", "tensor_parallel_size": "--tensor-parallel-size"}


def _check_known(reads: Sequence[Read], origins: Mapping[str, str]) -> None:
    """InputError that lists settings for which the sources have only a shell variable without a
    value.
    """
    lost = {
        name: (variable, read.name)
        for read in reads
        for name, variable in read.description.missing.items()
        if name not in origins and name != "served_model_name"
    }
    if not lost:
        return
    options = [
        _OPTIONS.get(name, f"--variable {variable}=VALUE")
        for name, (variable, _) in lost.items()
        if name in _OPTIONS or is_name(variable)
    ]
    given = f"give {' '.join(dict.fromkeys(options))}, or write" if options else "write"
    raise InputError(
        "a shell variable, whose value is not here"
        if len(lost) == 1
        else "shell variables, whose values are not here",
        where=", ".join(dict.fromkeys(where for _, where in lost.values())),
        value=", ".join(
            f"${variable} ({name or 'words that may be flags'})"
            for name, (variable, _) in lost.items()
        ),
        remedy=f"{given} its value into the command line",
    )


def servers_among(reads: Sequence[Read]) -> list[Read]:
    """The sources that are logs or scrapes of different servers: of one format, each with its own
    pool size.

    Empty if there is only one server.
    """
    for form in _OF_A_SERVER:
        own = [each for each in reads if each.format == form]
        pools = [each for each in own if any(map(each.description.settings.reported().get, POOL))]
        if len(pools) > 1:
            return pools
    return []


def _of_its_file(read: Read, names: Sequence[str]) -> Read:
    """If a source has settings of several runs, those of the run with the imported requests."""
    by_file = read.description.by_file
    if not by_file:
        return read
    wanted = [name for name in names if name in by_file]
    if len(wanted) != 1:
        raise InputError(
            "settings of several runs",
            where=read.name,
            value=", ".join(by_file),
            remedy="import the requests of one of them with it",
        )
    return read._replace(description=replace(read.description, settings=by_file[wanted[0]]))


def _settings(
    ordered: Sequence[Read],
) -> tuple[ServerSettings, dict[str, str], list[Contradiction]]:
    found: dict[str, Any] = {}
    origins: dict[str, str] = {}
    contradictions: list[Contradiction] = []
    for read in ordered:
        for name, value in read.description.settings.reported().items():
            if name not in found:
                found[name], origins[name] = value, read.name
            elif not _same(name, found[name], value):
                contradictions.append(
                    Contradiction(name, found[name], origins[name], value, read.name)
                )
            elif name == "model" and value.count("/") == 1 and found[name].count("/") != 1:
                found[name], origins[name] = value, read.name  # an id says more than a path
    return ServerSettings.parse(found, "merged"), origins, contradictions


def _same(name: str, one: Any, other: Any) -> bool:
    if name in ("model", "served_model_name"):
        return short_model(one) == short_model(other)
    if name == "engine_version":
        short, long = sorted((str(one), str(other)), key=len)
        return long == short or long.startswith(f"{short}.")
    if isinstance(one, float) or isinstance(other, float):
        return math.isclose(one, other, rel_tol=_CLOSE)
    return bool(one == other)


def short_model(name: str) -> str:
    """The last part of a model's name, in lower case; equal for `org/name`, a path, and a cache
    folder.
    """
    parts = name.rstrip("/").split("/")
    cached = next((part for part in parts if part.startswith("models--")), None)
    last = cached or parts[-1]
    return last.rpartition("--")[2].lower()
