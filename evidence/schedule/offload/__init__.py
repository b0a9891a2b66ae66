"""Schedules recorded from vLLM with a KV connector that offloads blocks."""
