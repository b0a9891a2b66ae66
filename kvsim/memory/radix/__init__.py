"""KV memory managed by a radix tree over tokens, as in SGLang."""
