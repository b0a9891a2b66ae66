"""Schedules recorded from real engines, compared with kvsim's row by row."""
