"""Hit rates of a prefix cache of any size, without simulating: LRU's whole curve in one pass, and
upper bounds for any policy.
"""
