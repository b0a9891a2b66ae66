"""A folder of one observed run, as `kvsim validate run` reads it."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from kvsim.interchange.collections.collection import Collection
from kvsim.observed.folder import ObservedRun
from kvsim.observed.trial import Served, Trial
from kvsim.observed.vllm_meta import VllmMeta


class Observed(Collection):
    """Of vLLM; a run that kvsim observed itself is of no GPU's figures."""

    @classmethod
    def claims(cls, folder: Path) -> bool:
        return (folder / "meta.json").is_file() and (folder / "requests.csv").is_file()

    @classmethod
    def trials(cls, folder: Path) -> Iterator[Trial]:
        run = ObservedRun.read(folder)
        if not isinstance(run.meta, VllmMeta):
            return
        rows = run.rows
        served = Served(
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
