"""Schedules recorded from vLLM with its Simple connector."""
