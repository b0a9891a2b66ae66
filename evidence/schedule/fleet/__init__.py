"""Recorded schedules of whole fleets."""
