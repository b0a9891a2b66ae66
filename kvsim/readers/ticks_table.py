"""timeseries.csv of an observed run: an engine's gauges, one row per tick, in seconds
of the run.
"""

from kvsim.observed.rows import Tick
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.reading.csv_rows import has_columns, records
from kvsim.plumbing.reading.files import read_text
from kvsim.readers.description import NS_PER_S, Description, GaugeSample, GaugeSeries
from kvsim.readers.reader import ENGINE_ITSELF, MEASURED, Sniffed, Source


class TicksTable(Source):
    """timeseries.csv. Its clock is that of requests.csv in the same folder."""

    rank = ENGINE_ITSELF
    what = "gauges of an observed run"
    gives = MEASURED

    @classmethod
    def sniff(cls, source: Sniffed) -> bool:
        """Recognise the table by its columns."""
        head = source.text.split("\n", 1)[0]
        return has_columns(head, ("t", "running")) or has_columns(head, ("t", "kv_cache_pct"))

    @classmethod
    def read(cls, source: Sniffed) -> Description:
        """Read one gauge sample from each row."""
        text = read_text(source.path)
        samples = tuple(
            _sample(Tick.parse(cells, f"{text.name}, line {line}")) for line, cells in records(text)
        )
        if not samples:
            raise InputError("no rows", where=text.name)
        return Description(gauges=GaugeSeries(samples, "run"))


def _sample(tick: Tick) -> GaugeSample:
    return GaugeSample(
        round(tick.t * NS_PER_S),
        tick.running,
        tick.waiting,
        None if tick.kv_cache_pct is None else tick.kv_cache_pct / 100,
        tick.prompt_throughput,
        tick.gen_throughput,
    )
