"""Tools for what-if questions: counterfactual runs of a scenario with changed settings."""
