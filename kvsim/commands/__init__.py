"""What a user types: one file a command, each a thin layer over a library function."""
