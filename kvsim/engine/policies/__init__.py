"""Policies of every scheduler: order of the queue, choice of victims, preemption."""
