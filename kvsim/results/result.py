"""What a simulation returns: one run an allocator, as numbers and as tables."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from kvsim.memory.ledger import CLASSES
from kvsim.results.recorder import SERIES_COLUMNS, Recorder
from kvsim.version import VERSION

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Run:
    """One allocator's run. summary: its entry of summary.json."""

    label: str
    kind: str
    summary: dict[str, Any]
    recorder: Recorder = field(repr=False)

    @cached_property
    def requests(self) -> "pd.DataFrame":
        """One row a sequence (a request with n samples has n), refused requests included.

        Times are ps from the stream's start, -1 where the moment never came.
        """
        import pandas as pd

        rows: list[tuple[Any, ...]] = [
            (
                seq.id,
                seq.request.session,
                "finished",
                None,
                seq.arrival_ps,
                seq.first_scheduled_ps,
                seq.first_token_ps,
                finish_ps,
                seq.prompt_tokens,
                seq.output_tokens,
                seq.hit_tokens,
                seq.num_preemptions,
            )
            for seq, finish_ps in zip(self.recorder.finished, self.recorder.finish_ps, strict=True)
        ]
        rows += [
            (
                request.id,
                request.session,
                "rejected",
                reason,
                arrival_ps,
                -1,
                -1,
                -1,
                request.prompt_tokens,
                request.output_tokens,
                0,
                0,
            )
            for request, arrival_ps, reason in self.recorder.rejected
        ]
        frame = pd.DataFrame(rows, columns=list(REQUEST_COLUMNS))
        return frame.sort_values("arrival_ps", kind="stable", ignore_index=True)

    @cached_property
    def memory(self) -> "pd.DataFrame":
        """The ledger over time, one row a stretch of equal steps: the ten classes in bytes in its
        first step (`CLASS_bytes`) and in its last (`CLASS_end_bytes`).
        """
        import pandas as pd

        rows = np.frombuffer(self.recorder.series, dtype=np.int64)
        return pd.DataFrame(rows.reshape(-1, len(SERIES_COLUMNS)), columns=list(SERIES_COLUMNS))


REQUEST_COLUMNS = (
    *("id", "session", "status", "reason"),
    *("arrival_ps", "scheduled_ps", "first_token_ps", "finish_ps"),
    *("prompt_tokens", "output_tokens", "cached_tokens", "preemptions"),
)


@dataclass(frozen=True)
class Result:
    """All runs of a scenario; `scenario` is resolved: every default written out, provenance
    included.
    """

    scenario: dict[str, Any]
    runs: tuple[Run, ...]

    def summary(self) -> dict[str, Any]:
        """The contents of summary.json."""
        return {
            "kvsim": VERSION,
            "scenario": self.scenario,
            "runs": [run.summary for run in self.runs],
        }

    def __getitem__(self, label: str) -> Run:
        """The run with this label."""
        return next(run for run in self.runs if run.label == label)


__all__ = ["CLASSES", "REQUEST_COLUMNS", "Result", "Run"]
