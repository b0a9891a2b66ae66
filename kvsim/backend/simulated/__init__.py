"""The simulator's nouns as the backend's: a model's shape, a plan's spans, a run's steps."""
