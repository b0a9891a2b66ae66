"""Readers of what llama-server and Ollama leave behind."""
