"""Simulate many published runs of real engines, and compare the results."""
