"""Convert a merged description to a scenario, its request stream and an observed run."""
