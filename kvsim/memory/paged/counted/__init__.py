"""Paged KV memory where blocks are counts: nobody can name content, nobody asks who has which."""
