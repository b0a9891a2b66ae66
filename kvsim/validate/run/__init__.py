"""Runs of real engines against the simulated engine under their settings."""
