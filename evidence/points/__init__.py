"""Measured serving points: simulate each, and fit the step-time constants on one half of them."""
