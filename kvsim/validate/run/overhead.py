"""One constant per step, fitted on what was over in the first part of a run."""

from collections.abc import Callable

from kvsim.observed.folder import ObservedRun
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.units import PS_PER_S, PS_PER_US
from kvsim.validate.run.errors import recorded, simulated
from kvsim.validate.run.replay import Replay

_EXACT_PS = PS_PER_US
_MOST_DOUBLINGS = 8


def parts(run: ObservedRun, share: float) -> tuple[list[int], list[int]]:
    """Requests answered within this share of the run's time, and the others, by index.

    InputError if one part is empty, or the first has no request with two tokens.
    """
    end_s = share * max(row.last_token_s for row in run.rows)
    first = [index for index, row in enumerate(run.rows) if row.last_token_s <= end_s]
    rest = [index for index, row in enumerate(run.rows) if row.last_token_s > end_s]
    if not rest or not any(run.rows[index].output_tokens > 1 for index in first):
        raise InputError(
            "the part to fit on must hold some answered requests, and leave others",
            where="--fit-overhead",
            value=share,
            limit="between 0 and 1",
        )
    return first, rest


def fit_overhead(
    run: ObservedRun, first: list[int], shortest_ps: int, replay_with: Callable[[int], Replay]
) -> int:
    """The constant (ps) with which the requests `first` get their tokens, on average, as fast as
    they really did.

    The time per output token is the step itself, counted some hundred times a request; it hardly
    knows of queues. replay_with: simulates the run with a constant. shortest_ps: no constant may
    take this much away. InputError if no constant does it.
    """
    from scipy.optimize import brentq

    goal_s = recorded(run, first)["tpot_s"]["mean"]

    def excess(constant_ps: float) -> float:
        replay = replay_with(round(constant_ps))
        return simulated(run, replay, first)["tpot_s"]["mean"] / goal_s - 1.0

    low, high = -0.9 * shortest_ps, 0.0
    if excess(high) < 0.0:
        low, high = high, goal_s * PS_PER_S / 8
        for _ in range(_MOST_DOUBLINGS):
            if excess(high) > 0.0:
                break
            low, high = high, 2 * high
        else:
            raise InputError("no constant per step makes the run as slow as it was")
    elif excess(low) > 0.0:
        raise InputError(
            "no constant per step makes the run as fast as it was",
            remedy="the samples are of slower steps than this run's",
        )
    return round(float(brentq(excess, low, high, xtol=_EXACT_PS)))
