"""Recordings from llama.cpp: its cells, and its server's slots."""
