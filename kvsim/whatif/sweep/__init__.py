"""A sweep, many runs of one scenario: axes, points, a backend, the journal, one table and its
findings.
"""
