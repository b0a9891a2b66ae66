"""What a merged description becomes: a scenario, the stream it replays, an observed run."""
