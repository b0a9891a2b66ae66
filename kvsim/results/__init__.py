"""Results of a run as numbers and tables; each number is defined in one place."""
