"""Reports of a result: HTML page, terminal text, figures and tables. Results are only read."""
