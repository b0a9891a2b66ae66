"""Further memory for blocks of K and V: a pool in host memory, and files."""
