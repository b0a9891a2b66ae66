"""What vLLM does, stated once: its versions, and how it plans blocks for the layers of a model."""
