"""A small Llama in torch: weights, attention, graphs and kernels, over any store."""
