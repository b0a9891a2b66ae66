"""Measurement of step times on this machine: plans, clocks, timings, samples."""
