"""Sequences that verify drafts in step with each other, as paged allocators keep them."""
