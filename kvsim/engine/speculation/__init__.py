"""Speculative decoding as a part of a scheduler: acceptance of drafts, and tokens of a step."""
