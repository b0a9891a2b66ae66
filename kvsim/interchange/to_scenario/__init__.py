"""Conversion of a merged description to a scenario, its stream and an observed run."""
