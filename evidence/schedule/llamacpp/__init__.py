"""Recordings from llama.cpp: its KV cells, and its server's slots."""
