"""Stores of K and V: one file each, with the interface `Store`."""
