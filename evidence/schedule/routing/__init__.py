"""Recorded decisions of routers, compared with those of kvsim's router of the same kind."""
