"""Is decoding with a KV cache the same as without, and what does it save?"""
