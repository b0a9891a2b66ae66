"""Recorded decisions of routers, each compared with the choice of kvsim's router of that kind."""
