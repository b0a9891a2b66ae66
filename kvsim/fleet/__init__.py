"""Fleets: replicas on one clock, with a router."""
