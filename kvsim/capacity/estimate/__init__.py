"""Estimates of the memory that an engine uses outside the KV pool, by item."""
