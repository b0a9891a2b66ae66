"""Rules of llama.cpp (0c1e57098, autumn 2026): sizes, types and placement of its KV cache."""
