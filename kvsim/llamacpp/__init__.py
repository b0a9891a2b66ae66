"""llama.cpp's rules, stated once (0c1e57098, autumn 2026)."""
