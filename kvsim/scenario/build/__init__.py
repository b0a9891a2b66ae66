"""Build a replica's parts from the tables of a scenario: pool, stages, step time, tiers."""
