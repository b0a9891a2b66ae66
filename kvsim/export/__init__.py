"""A simulated run in the formats of other tools."""
