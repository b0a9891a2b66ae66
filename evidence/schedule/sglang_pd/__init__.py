"""Schedules recorded from two engines of SGLang's, one for prompts and one for outputs."""
