"""What llama.cpp does, stated once (0c1e57098, autumn 2026)."""
