"""Schedules recorded from data-parallel ranks of vLLM that compute each forward together."""
