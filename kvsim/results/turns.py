"""Prefix cache hits by turn of a conversation, computed from the rows of a run's requests."""

from typing import Any, NamedTuple

import numpy as np


class TurnHits(NamedTuple):
    """Totals over the turns with one number in all conversations. turn: number of the turn, from 1.
    requests: number of finished requests. prompt_tokens, hit_tokens: prompt tokens, and those hit
    in a cache or tier.
    """

    turn: int
    requests: int
    prompt_tokens: int
    hit_tokens: int

    @property
    def share(self) -> float:
        """Share of the prompt tokens that were hit."""
        return self.hit_tokens / self.prompt_tokens if self.prompt_tokens else 0.0


def hits_by_turn(requests: Any) -> list[TurnHits]:
    """Prefix cache hits by turn, with turns in order of arrival within each session; empty if no
    session has two turns.

    requests: columns or a table, as `kvsim.results.run_tables.request_columns` makes them.
    """
    reached: dict[str, int] = {}
    sums: list[list[int]] = []
    columns = (requests[name] for name in ("session", "status", "prompt_tokens", "cached_tokens"))
    for session, status, prompt, cached in zip(*columns, strict=True):  # by arrival
        if not isinstance(session, str) or status != "finished":
            continue
        turn = reached[session] = reached.get(session, 0) + 1
        if turn > len(sums):
            sums.append([0, 0, 0])
        for place, count in enumerate((1, int(prompt), int(cached))):
            sums[turn - 1][place] += count
    return [TurnHits(at, *each) for at, each in enumerate(sums, 1)] if len(sums) > 1 else []


def mean_conversation_tokens(requests: Any) -> float | None:
    """The mean context of a conversation at its end, in tokens; None without conversations."""
    ends: dict[str, int] = {}
    columns = (requests[name] for name in ("session", "prompt_tokens", "output_tokens"))
    for session, prompt, output in zip(*columns, strict=True):
        if isinstance(session, str):
            ends[session] = max(ends.get(session, 0), int(prompt) + int(output))
    return float(np.mean([*ends.values()])) if ends else None
