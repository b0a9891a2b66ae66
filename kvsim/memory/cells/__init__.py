"""KV memory as llama.cpp keeps it: a field of cells."""
