"""`kvsim capacity`: the largest load, smallest pool or best setting that meets the objectives, by
bisection over runs.
"""
