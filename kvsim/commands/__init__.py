"""The commands: one file each, a thin layer over a library function."""
