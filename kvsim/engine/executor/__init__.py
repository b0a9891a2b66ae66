"""Executors of an engine: stages of a pipeline, copies that run concurrently with the steps."""
