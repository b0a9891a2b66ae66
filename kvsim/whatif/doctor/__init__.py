"""The causes that a server suffers from: suspected by its ledger, proved by counterfactual runs,
ranked.
"""
