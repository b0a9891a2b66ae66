"""Paged KV memory: fixed-size blocks from one pool, as in vLLM."""
