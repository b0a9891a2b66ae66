"""Parts of a server, and the one table of pairs of them that do not run together."""
