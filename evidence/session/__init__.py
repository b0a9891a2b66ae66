"""Everything a session with a GPU is for, in one command: prove, measure, compare, serve, hold."""
