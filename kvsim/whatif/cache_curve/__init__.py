"""What a prefix cache of any size would hold of a stream, without running it: LRU's whole curve in
one pass, and the bounds that no policy passes.
"""
