"""Readers of AIPerf's files."""
