"""The policies of a scheduler, the same for every kind of scheduler."""

from typing import NamedTuple

from kvsim.engine.policies.preemption import Preemption
from kvsim.engine.policies.queue import WaitingQueue
from kvsim.engine.policies.victims.victim import Victim


class Policies(NamedTuple):
    """waiting: the queue. victim: rule that chooses the victim. preemption: recompute or swap."""

    waiting: WaitingQueue
    victim: Victim
    preemption: Preemption
