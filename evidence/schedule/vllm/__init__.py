"""Schedules recorded from vLLM."""
