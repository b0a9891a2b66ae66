"""Plain parts of every scheduler: order of the queue, victim, what preemption does."""
