"""Several groups of layers on one pool: windows and recurrent states."""
