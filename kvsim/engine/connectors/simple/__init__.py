"""vLLM's Simple connector: a second pool of blocks in host memory."""
