"""Readers of recorded runs in the forms in which they were published."""
