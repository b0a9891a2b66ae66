"""Stores of K and V: one file each, behind the interface `Store`."""
