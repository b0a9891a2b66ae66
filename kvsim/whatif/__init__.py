"""Counterfactual runs."""
