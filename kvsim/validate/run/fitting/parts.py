"""Divide a run's requests into those that a correction is fitted on, and the others."""

from kvsim.observed.folder import ObservedRun
from kvsim.plumbing.errors import InputError

FEWEST = 3


class Parts:
    """first has the indices of the requests answered within `share` of the run's time (until
    end_s), in order of completion.

    rest has the other requests, in order of arrival. InputError if rest is empty, or first has
    fewer than FEWEST requests with two output tokens or more.
    """

    def __init__(self, run: ObservedRun, share: float) -> None:
        rows = run.rows
        self.end_s = share * max(row.last_token_s for row in rows)
        answered = sorted(range(len(rows)), key=lambda index: rows[index].last_token_s)
        self.first = [index for index in answered if rows[index].last_token_s <= self.end_s]
        self.rest = [index for index, row in enumerate(rows) if row.last_token_s > self.end_s]
        several = sum(rows[index].output_tokens > 1 for index in self.first)
        if several < FEWEST or not self.rest:
            raise InputError(
                f"the part to fit on must hold {FEWEST} answered requests, and leave others",
                where="--fit",
                value=share,
                limit="between 0 and 1",
            )
