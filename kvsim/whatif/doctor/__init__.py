"""`kvsim doctor`: causes of a slow server, suspected by its ledger, proved by counterfactual runs,
and ranked.
"""
