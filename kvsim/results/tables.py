"""What a recorder wrote down, as pandas tables."""

from typing import TYPE_CHECKING, Any

import numpy as np

from kvsim.results.recorder import SERIES_COLUMNS, Recorder

if TYPE_CHECKING:
    import pandas as pd

REQUEST_COLUMNS = (
    *("id", "session", "status", "reason"),
    *("arrival_ps", "scheduled_ps", "first_token_ps", "finish_ps"),
    *("prompt_tokens", "output_tokens", "cached_tokens", "preemptions"),
)


def request_table(recorder: Recorder) -> "pd.DataFrame":
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
        for seq, finish_ps in zip(recorder.finished, recorder.finish_ps, strict=True)
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
        for request, arrival_ps, reason in recorder.rejected
    ]
    frame = pd.DataFrame(rows, columns=list(REQUEST_COLUMNS))
    return frame.sort_values("arrival_ps", kind="stable", ignore_index=True)


def memory_table(recorder: Recorder) -> "pd.DataFrame":
    """The ledger over time, one row a stretch of equal steps: the ten classes in bytes in its
    first step (`CLASS_bytes`) and in its last (`CLASS_end_bytes`).
    """
    import pandas as pd

    rows = np.frombuffer(recorder.series, dtype=np.int64)
    return pd.DataFrame(rows.reshape(-1, len(SERIES_COLUMNS)), columns=list(SERIES_COLUMNS))
