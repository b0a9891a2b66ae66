"""Conversations in rounds: each turn begins when all conversations have the answer to the turn
before.

SGLang's multi-turn benchmark does so (bench_multiturn.py --enable-round-barrier), like others that
print cache hits by round. With --ready-queue-policy random each round shuffles the conversations,
and a small cache then hits some of them. With a fixed order it hits none.
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
    """The conversations, with each turn delayed until all answers of the turn before. The requests
    of a turn are spaced by `arrivals`; pauses of the conversations are added.
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
