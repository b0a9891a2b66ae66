"""Hit rates of a prefix cache of any size, without running the stream: LRU's whole curve in one
pass, and the upper bounds of any policy.
"""
