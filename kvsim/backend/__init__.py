"""Run the simulator's schedules on a real transformer, in torch.

Everything a bare GPU machine needs (shape, weights, decoder, stores, attention, runner, measuring)
imports torch, numpy and the standard library alone. A test checks this.
"""
