"""Paged KV memory where nobody asks who has which block: blocks are counts, content is runs."""
