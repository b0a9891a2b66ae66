"""The effect of other settings: counterfactual runs, ranked, as flags of `vllm serve`."""
