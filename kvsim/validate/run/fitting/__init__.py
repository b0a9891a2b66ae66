"""Fit a correction of step times on a run's first part; the rest of the run checks it.

parts.py    divides the requests into those to fit on and the others
forms.py    which numbers of a correction are free
aims.py     the recorded quantities to reproduce, and their standard errors
search.py   least squares for the numbers
judge.py    cross-validates each form within the first part
fit.py      chooses the form, and computes intervals
"""
