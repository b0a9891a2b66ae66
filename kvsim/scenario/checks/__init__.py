"""What is checked and noted before a scenario runs."""
