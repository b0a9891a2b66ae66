"""llama-server (llama.cpp 0c1e57098, tools/server): slots over a field of cells."""
