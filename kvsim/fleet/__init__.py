"""Fleets: replicas on one clock behind a router."""
