"""`kvsim measure`: the assumed numbers of a described load, and the effect of each."""
