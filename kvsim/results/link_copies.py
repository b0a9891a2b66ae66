"""The table of copies over links: KV transfers between prefill and decode replicas, and tier
copies.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

    from kvsim.engine.connectors.totals import RunTotals
    from kvsim.engine.copy_log import CopyLog

LINK_COLUMNS = ("link", "asked_ps", "start_ps", "end_ps", "num_bytes")
TRANSFERS = "prefill to decode"

NamedLogs = Sequence[tuple[str, "CopyLog"]]


def tier_links(totals: "RunTotals | None") -> "list[tuple[str, CopyLog]]":
    """The links of a replica's tiers, one for each direction, with their copies."""
    return [named for tier in (totals.tiers if totals else ()) for named in tier.copies]


def link_table(logs: NamedLogs) -> "pd.DataFrame":
    """One row for each copy, by link and in order of submission, times in ps."""
    import pandas as pd

    columns = {
        name: np.concatenate([np.array(getattr(log, name), np.int64) for _, log in logs])
        for name in LINK_COLUMNS[1:]
    }
    names = [name for name, log in logs for _ in log.start_ps]
    return pd.DataFrame({"link": names, **columns})
