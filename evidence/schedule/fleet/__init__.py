"""Schedules recorded from whole fleets."""
