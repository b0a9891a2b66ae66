"""Conversations in rounds: the next turn of all of them begins when all have their answers.

So do SGLang's multi-turn benchmark (bench_multiturn.py --enable-round-barrier) and others that
print hits by round. With --ready-queue-policy random each round comes in an order of its own. Part
of a small cache is then hit; if the order is always the same, none is.
"""

from collections.abc import Sequence
from typing import Literal

from kvsim.plumbing.errors import InputError
from kvsim.request import Request
from kvsim.workload.arrivals import ArrivalOptions
from kvsim.workload.random import generator

RoundOrder = Literal["in-order", "random"]


def in_rounds(
    conversations: Sequence[Sequence[Request]],
    arrivals: ArrivalOptions,
    order: RoundOrder,
    seed: int,
) -> list[list[Request]]:
    """The conversations with each turn's requests after the last answer of the turn before, at the
    gaps of `arrivals`. Their own pauses come on top.
    """
    made = [list(conversation) for conversation in conversations]
    for turn in range(max(map(len, made), default=0)):
        going = [at for at, conversation in enumerate(made) if len(conversation) > turn]
        if order == "random" and turn:
            going = generator(seed, f"round {turn}").permutation(going).tolist()
        schedule = arrivals.schedule(len(going), generator(seed, f"arrivals of round {turn}"))
        if schedule.after is not None:
            raise InputError(
                "users of a closed loop do not wait for each other",
                where="workload.rounds",
                remedy='give arrivals of a rate, such as {kind = "poisson", rate_per_s = 16}',
            )
        for at, slot_ps in zip(going, schedule.arrival_ps.tolist(), strict=True):
            request = made[at][turn]
            made[at][turn] = request._replace(
                group=f"round {turn}",
                after=f"round {turn - 1}" if turn else None,
                think_ps=request.think_ps + slot_ps if turn else 0,
            )
    return made
