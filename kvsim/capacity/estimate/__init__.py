"""What the engine takes off its share of a device before the KV pool, item by item."""
