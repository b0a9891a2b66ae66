"""Memory in blocks out of one pool."""
