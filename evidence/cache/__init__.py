"""Checks that decoding with a KV cache gives the same logits as without, and what it saves."""
