"""The pool: how much device memory is left for KV, and how much fits into it."""
