"""Sentences on hits by turn of a conversation, and on how much a tier can hold."""

from collections.abc import Iterator

from kvsim.engine.connectors import TIERS
from kvsim.report import numbers
from kvsim.report.names import called
from kvsim.results.result import Result, Run
from kvsim.results.turns import hits_by_turn, mean_conversation_tokens

MOST_TURNS = 16  # that a line has room for
_SPLIT = ("pipeline_parallel_size", "decode_context_parallel_size")


def turn_lines(result: Result) -> Iterator[str]:
    """One line per run with hits in conversations: `hits by turn: 0, 50, 67 %`."""
    for run in () if result.fleets else result.runs:  # turns of a conversation visit replicas
        if not run.summary.prefix_cache.hit_tokens or not _has_rows(run):
            continue
        turns = hits_by_turn(run.columns("requests"))
        if turns:
            shares = ", ".join(f"{100 * each.share:.0f}" for each in turns[:MOST_TURNS])
            more = f" (the first {MOST_TURNS} of {len(turns)})" if len(turns) > MOST_TURNS else ""
            who = f" ({called(run.label)})" if len(result.runs) > 1 else ""
            yield f"hits by turn{who}: {shares} %{more}"


def tier_room(result: Result) -> Iterator[str]:
    """Sentences on how many tokens and conversations each run's tiers can hold."""
    for run in () if result.fleets else result.runs:
        found = run.summary.offloading
        for tier in found.tiers if found is not None else ():
            tokens = _tokens(result, run, tier.kind, tier.capacity_bytes)
            if not tokens:
                continue
            size = numbers.size(tier.capacity_bytes)
            room = f"{numbers.plural(tokens, 'token')}{_held(run, tokens)}"
            yield f"{tier.kind} ({size}) has room for {room}."


def _has_rows(run: Run) -> bool:
    """Whether the run's table of requests can be read; a run that has only its summary lacks it."""
    return run.recorder is not None or "requests" in run.tables


def _tokens(result: Result, run: Run, kind: str, capacity_bytes: int | None) -> int | None:
    """Tokens that the tier can hold; None if it is unlimited, or if its size does not count the KV
    of all layers and tokens.
    """
    memory = run.summary.memory
    model = result.scenario["model"]
    ranks = int(model.get("tensor_parallel_size") or 1)
    if any((model.get(key) or 1) > 1 for key in _SPLIT):
        return None  # a GPU's pool is of some layers or tokens alone
    shared = TIERS.get(kind).ranks_share if kind in TIERS else None
    if shared is None or not capacity_bytes or not memory.capacity_tokens:
        return None
    token_bytes = memory.capacity_bytes // memory.capacity_tokens
    return capacity_bytes // (token_bytes * (ranks if shared else 1))


def _held(run: Run, tokens: int) -> str:
    mean = mean_conversation_tokens(run.columns("requests")) if _has_rows(run) else None
    if not mean:
        return ""
    some = numbers.figures(tokens / mean)
    return f": {some} conversations of {mean:,.0f} tokens, the mean at their end"
