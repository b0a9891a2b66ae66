"""All measurements for which a GPU is rented, in one command: prove, measure, compare, serve."""
