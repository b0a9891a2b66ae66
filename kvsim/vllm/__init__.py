"""vLLM's rules, stated once: its versions, and its plan of blocks for the layers of a model."""
