"""torch's memory snapshots: read from a file, recorded from an arena, exported from a run."""
