"""A real run as a folder: what it holds, how it is written and read. No torch here."""
