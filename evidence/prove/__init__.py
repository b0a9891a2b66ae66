"""Whether a cache changes the answer: schemes, rules and random schedules against recomputing."""
