"""What a run wrote down, as numbers and tables; one definition of each number."""
