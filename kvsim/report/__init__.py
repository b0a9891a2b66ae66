"""The page: words, figures and tables of a result. It only reads."""
