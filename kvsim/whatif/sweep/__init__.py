"""A sweep runs one scenario at many settings: axes, points, backend, journal and table."""
