"""What a server suffers from: causes found in the ledger, proved by counterfactual runs, ranked."""
