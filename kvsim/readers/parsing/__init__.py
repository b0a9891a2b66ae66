"""Values out of text and JSON that others wrote: typed, bounded, every fault one line."""
