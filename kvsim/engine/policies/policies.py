"""The policies that a scheduler is given: plain parts, the same for every kind of scheduler."""

from typing import NamedTuple

from kvsim.engine.policies.preemption import Preemption
from kvsim.engine.policies.queue import WaitingQueue
from kvsim.engine.policies.victims.victim import Victim


class Policies(NamedTuple):
    """waiting: the queue, in its order. victim: who gives way. preemption: what becomes of it."""

    waiting: WaitingQueue
    victim: Victim
    preemption: Preemption
