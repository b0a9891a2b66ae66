"""What load, pool or setting just keeps the objectives: found by bisection over runs."""
