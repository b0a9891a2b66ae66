"""Recorded decisions of routers, each beside what kvsim's router of that kind chooses."""
