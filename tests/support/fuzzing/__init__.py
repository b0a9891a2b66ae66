"""Damaged files for every reader: sound.py is spoilt by mutation.py and read by targets.py."""
