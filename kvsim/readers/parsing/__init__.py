"""Parse values from text and JSON of other tools: typed and bounded, with one-line errors."""
