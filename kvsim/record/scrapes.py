"""Scrapes of a server's /metrics, one per second, with their times; and the gauges in them."""

import asyncio
import gzip
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from kvsim.observed.rows import Tick
from kvsim.plumbing.errors import InputError
from kvsim.readers.parsing.prometheus import Metric, finite, metrics, started_s
from kvsim.record.address import LiveServer
from kvsim.record.engines import LiveEngine
from kvsim.record.reply import Now

FOLDER = "scrapes"
SUFFIX = ".prom.gz"
_DIGITS = 9


class KeptScrape(NamedTuple):
    """A scrape saved at `path`. time_s, on the recorder's clock, is halfway between request and
    answer.
    """

    time_s: float
    path: Path

    @property
    def text(self) -> str:
        """The metrics as the server wrote them, unzipped."""
        return gzip.decompress(self.path.read_bytes()).decode("utf-8", "replace")


class Scraper:
    """Polls the metrics every `every_s` seconds and saves each answer in RUN/scrapes, under a file
    name that is its Unix time.

    unix_s is the Unix time at 0 of the clock `now`. failed counts polls without an answer.
    """

    def __init__(
        self, server: LiveServer, run: Path, every_s: float, now: Now, unix_s: float
    ) -> None:
        self._server, self._folder = server, run / FOLDER
        self._every_s, self._now, self._unix_s = every_s, now, unix_s
        self.kept: list[KeptScrape] = []
        self.failed = 0

    @contextmanager
    def kept_only_whole(self) -> Iterator[None]:
        """A context that, on an error inside it, deletes all scrapes and folders made for them."""
        made = [folder for folder in (self._folder, self._folder.parent) if not folder.exists()]
        try:
            yield
        except BaseException:
            for scrape in self.kept:
                scrape.path.unlink(missing_ok=True)
            for folder in made:
                with suppress(OSError):
                    folder.rmdir()
            raise

    async def poll(self) -> None:
        """Take one scrape; if the server does not answer, count the failure."""
        asked_s = self._now()
        try:
            text = await self._server.metrics()
        except InputError:
            self.failed += 1
            return
        self._keep((asked_s + self._now()) / 2, text)

    async def run(self) -> None:
        """Poll at even gaps until cancelled, however long a poll takes."""
        due_s = self._now()
        while True:
            due_s = max(due_s + self._every_s, self._now())
            await asyncio.sleep(due_s - self._now())
            await self.poll()

    def _keep(self, time_s: float, text: str) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"{time_s + self._unix_s:.3f}{SUFFIX}"
        temporary = path.with_name(f".{path.name}.tmp")
        temporary.write_bytes(gzip.compress(text.encode(), 1, mtime=0))
        os.replace(temporary, path)
        self.kept.append(KeptScrape(time_s, path))


def has_start(text: str) -> bool:
    """Whether a scrape has the start time of its server. Two scrapes with the same start time are
    of one server.
    """
    return started_s(metrics(text, "/metrics")) is not None


def sums_of(engine: LiveEngine, text: str) -> dict[str, float]:
    """Each metric summed over the engine's data-parallel ranks, under its name without the engine's
    prefix.
    """
    found: dict[str, float] = {}
    for name, _, value in _own(engine, text):
        found[name] = found.get(name, 0.0) + value
    return found


def ticks_of(engine: LiveEngine, scrapes: Sequence[KeptScrape], zero_s: float) -> Iterator[Tick]:
    """Rows of timeseries.csv, one per scrape from zero_s on: its gauges, and tokens per second
    since the previous scrape.
    """
    before: tuple[float, Mapping[str, float]] | None = None
    for scrape in scrapes:
        samples = list(_own(engine, scrape.text))
        totals = {
            name: sum(value for plain, _, value in samples if plain in (name, f"{name}_total"))
            for name in (engine.prompts, engine.outputs)
        }
        rates = _rates(before, scrape.time_s, totals)
        before = (scrape.time_s, totals)
        usage = _values(samples, engine.usage)
        if scrape.time_s < zero_s:
            continue
        yield Tick(
            t=round(scrape.time_s - zero_s, _DIGITS),
            running=_total(_values(samples, engine.running)),
            waiting=_total(_values(samples, engine.waiting)),
            kv_cache_pct=round(100 * min(max(fmean(usage), 0.0), 1.0), 6) if usage else None,
            prompt_throughput=rates.get(engine.prompts),
            gen_throughput=rates.get(engine.outputs),
        )


def _own(engine: LiveEngine, text: str) -> Iterator[Metric]:
    for name, labels, value in metrics(text, "/metrics"):
        same = all(labels.get(rank, "0") == "0" for rank in engine.ranks)
        if name.startswith(engine.prefix) and finite(value) and same:
            yield Metric(name.removeprefix(engine.prefix), labels, value)


def _values(samples: Sequence[Metric], names: Sequence[str]) -> list[float]:
    """The values of the first metric in `names` that the scrape has."""
    found = ([value for plain, _, value in samples if plain == name] for name in names)
    return next((values for values in found if values), [])


def _total(values: Sequence[float]) -> int | None:
    return max(0, round(sum(values))) if values else None


def _rates(
    before: tuple[float, Mapping[str, float]] | None, time_s: float, totals: Mapping[str, float]
) -> dict[str, float]:
    """Tokens per second since the previous scrape; left out for a counter that was reset in
    between.
    """
    if before is None or time_s <= before[0]:
        return {}
    gap_s = time_s - before[0]
    return {
        name: round((total - before[1][name]) / gap_s, 6)
        for name, total in totals.items()
        if total >= before[1][name]
    }
