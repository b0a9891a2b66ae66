"""Checks and notes before a scenario runs."""
