"""The load, pool or setting that just keeps the objectives, found by bisection over runs."""
