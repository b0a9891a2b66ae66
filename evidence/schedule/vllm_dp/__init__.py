"""Replay of vLLM data-parallel ranks that compute each forward together."""
