"""Schedules recorded from vLLM with SimpleCPUOffloadConnector."""
