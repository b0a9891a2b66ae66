"""Schedules recorded from data-parallel attention ranks of SGLang in lockstep."""
