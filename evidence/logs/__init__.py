"""Start-up logs of real servers against the pool that kvsim sizes from their settings alone."""
