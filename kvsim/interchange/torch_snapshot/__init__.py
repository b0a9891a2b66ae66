"""torch's memory snapshots: read, recorded from an arena, exported from a run."""
