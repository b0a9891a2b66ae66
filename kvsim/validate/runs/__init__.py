"""Published runs of real engines, many at once, against the simulated engine."""
