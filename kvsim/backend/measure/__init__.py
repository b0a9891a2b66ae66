"""How long steps take on this machine: plans, clocks, timings, samples."""
