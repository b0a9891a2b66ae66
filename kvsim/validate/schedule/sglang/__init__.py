"""Schedules recorded from SGLang."""
