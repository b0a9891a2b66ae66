"""Runs of a scenario: one replica per allocator, a fleet, or prefill and decode replicas."""

from kvsim.simulation.single import Simulation, simulate

__all__ = ["Simulation", "simulate"]
