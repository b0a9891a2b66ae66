"""Recorded runs, each as somebody published them."""
