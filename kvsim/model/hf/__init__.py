"""Read Hugging Face's config.json, in the variants found in practice, into a model's layers."""
