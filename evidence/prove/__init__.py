"""Tests of whether KV caching changes the output: caching schemes, attention rules, random
schedules.
"""
