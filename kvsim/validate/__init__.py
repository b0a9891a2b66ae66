"""The simulator against recordings, papers, real runs and a real cache."""
