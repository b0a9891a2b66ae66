"""The simulated engine: schedule a step, wait for its time, process its outputs."""
