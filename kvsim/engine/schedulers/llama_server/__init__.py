"""llama-server (llama.cpp 0c1e57098, tools/server): slots that share a KV cache of cells."""
