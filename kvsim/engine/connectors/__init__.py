"""KV from outside of the device, under the scheduler of vLLM: the promise, and who keeps it."""
