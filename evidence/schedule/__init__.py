"""Recorded schedules of real engines, row for row."""
