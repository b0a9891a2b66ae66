"""Several groups of layers where nobody asks who has which block: only what can be named has a
number.
"""
