"""Experiments of the PagedAttention paper and its successors, simulated again.

A module runs one experiment of a publication, a figure or a section, and returns its checks. Every
input ships with the project: quantile grids of lengths, Poisson arrivals, a linear step time.
"""
