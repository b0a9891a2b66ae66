"""Step times composed of measured kernels: the tables, how a model's layers use them, the host."""
