"""Many runs of one scenario: axes -> points -> a backend -> the journal -> one table and a page."""
