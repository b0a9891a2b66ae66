"""Parts of a server, and one table of the pairs of parts that do not run together."""
