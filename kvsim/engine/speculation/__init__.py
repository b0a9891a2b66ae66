"""Speculative decoding as a part that a scheduler holds: who accepts what, and what a step asks."""
