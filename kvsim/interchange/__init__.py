"""The formats of other tools, in and out: a folder or a file each."""
