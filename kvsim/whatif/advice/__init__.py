"""`kvsim advise`: counterfactual runs with changed settings, ranked, and given as flags of `vllm
serve`.
"""
