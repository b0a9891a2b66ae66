"""Schedules recorded from data-parallel attention ranks of SGLang, which step together."""
