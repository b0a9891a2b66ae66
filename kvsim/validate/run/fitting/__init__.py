"""Corrections of the step times from a run's first part, fitted there and then fixed.

parts.py    the requests to fit on, and the others
forms.py    which numbers of a correction are free
aims.py     what the simulation should meet, and how surely that is known
search.py   the numbers that meet it best
judge.py    each form judged on blocks of the first part that it has not seen
fit.py      the form chosen, with intervals
"""
