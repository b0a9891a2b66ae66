"""Tables of measured serving points (a mean TTFT and TPOT each) against the simulated engine."""
