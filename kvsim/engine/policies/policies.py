"""The three policies that every scheduler has."""

from typing import NamedTuple

from kvsim.engine.policies.preemption import Preemption
from kvsim.engine.policies.queue import WaitingQueue
from kvsim.engine.policies.victims.victim import Victim


class Policies(NamedTuple):
    """waiting: the queue of waiting sequences. victim: the rule that chooses which sequence to
    preempt. preemption: recompute or swap.
    """

    waiting: WaitingQueue
    victim: Victim
    preemption: Preemption
