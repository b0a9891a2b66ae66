"""Speculative decoding as a part of a scheduler: acceptance of drafts, and the tokens of a step."""
