"""Schedules recorded from two engines of vLLM's, one for prompts and one for outputs."""
