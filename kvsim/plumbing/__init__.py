"""What every room needs and no user comes for: options, registries, errors, units, files."""
