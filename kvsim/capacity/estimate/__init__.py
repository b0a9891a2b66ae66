"""Estimates of the memory that an engine uses beside the KV pool, by item."""
