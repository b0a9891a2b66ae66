"""A folder of one observed run, as `kvsim validate run` reads it."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from kvsim.observed.folder import ObservedRun
from kvsim.observed.trial import ServedTimes, Trial
from kvsim.observed.vllm_meta import VllmMeta
from kvsim.readers.reader import RecordedRuns, Sniffed


class ObservedRunFolder(RecordedRuns):
    """An observed run of vLLM. A run that `kvsim observe` recorded is skipped, since its figures
    are of no GPU.
    """

    what = "an observed run"

    @classmethod
    def sniff(cls, source: Sniffed) -> bool:
        return all((source.path / name).is_file() for name in ("meta.json", "requests.csv"))

    @classmethod
    def runs(cls, folder: Path) -> Iterator[Trial]:
        run = ObservedRun.read(folder)
        if not isinstance(run.meta, VllmMeta):
            return
        rows = run.rows
        served = ServedTimes(
            np.array([row.arrival_s for row in rows]),
            np.array([row.first_token_s for row in rows]),
            np.array([row.last_token_s for row in rows]),
            np.array([row.prompt_tokens for row in rows]),
            np.array([row.output_tokens for row in rows]),
        )
        recorded = served.figures()
        usage = [tick.kv_cache_pct for tick in run.ticks if tick.kv_cache_pct is not None]
        if usage and run.meta.pool_recorded:
            recorded["kv_cache_usage"] = sum(usage) / len(usage) / 100
        yield Trial(run.name, run.meta, run.requests, recorded, assumed=tuple(run.assumptions))
