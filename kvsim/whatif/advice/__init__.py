"""What another setting would buy: counterfactual runs, ranked, as flags of `vllm serve`."""
