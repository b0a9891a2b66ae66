"""What else limits the chunks of a step, one file a limit: encoder inputs, adapters."""
