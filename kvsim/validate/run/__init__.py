"""Replay one recorded run of a real engine in the simulator, and compare the results."""
