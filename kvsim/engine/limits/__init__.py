"""Limits on the chunks of a step besides tokens, sequences and blocks: encoder inputs, LoRA
adapters.
"""
