"""Executors of an engine: for pipeline stages, and for copies that run concurrently with steps."""
