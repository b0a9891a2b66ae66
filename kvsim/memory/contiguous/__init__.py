"""A sequence in contiguous buffers on an arena."""
