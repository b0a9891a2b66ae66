"""Shared code of all folders: options, registries, errors, units, files."""
