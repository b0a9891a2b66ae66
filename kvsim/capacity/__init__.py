"""The KV pool: how much device memory is left for KV, and how many tokens fit."""
