"""Results of a run as numbers and tables, with one definition of each number."""
