"""Schedules recorded from a prefill and a decode engine of vLLM."""
