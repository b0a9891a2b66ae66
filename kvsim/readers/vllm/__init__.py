"""Readers of files of a vLLM server and of its benchmark."""
