"""llama.cpp's KV cache: a fixed array of cells, each of which holds one token."""
