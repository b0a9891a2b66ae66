"""Readers of the logs and files of llama-server and Ollama."""
