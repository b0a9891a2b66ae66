"""Compare the simulator with recordings, papers, real runs and a real cache."""
