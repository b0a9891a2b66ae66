"""Start-up logs of real servers, compared with the pool that kvsim sizes from their settings."""
