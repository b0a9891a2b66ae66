"""From the tables of a scenario to the parts of a replica: pool, stages, step time, tiers."""
