"""What the PagedAttention paper and its successors published, simulated again.

figures/ of the paper are rooms here: each module runs one experiment and returns its checks. Every
input ships with the project: quantile grids of lengths, Poisson arrivals, a linear step time.
"""
