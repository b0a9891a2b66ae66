"""Addresses of every sequence in the pool over time: observers that record them for the report
page.
"""
