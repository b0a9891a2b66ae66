"""Further limits on the chunks of a step, one file a limit: encoder inputs, adapters."""
