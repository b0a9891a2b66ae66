"""What a vLLM server writes, and its own benchmark."""
