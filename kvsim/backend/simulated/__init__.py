"""Translate the simulator's objects for the backend: models to shapes, plans to token spans."""
