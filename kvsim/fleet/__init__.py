"""Fleets: several replicas on one simulated clock, with a router."""
