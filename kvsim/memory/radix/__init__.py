"""Memory by a radix tree over tokens."""
