"""Readers of files of a vLLM server and of vLLM's benchmark."""
