"""Hugging Face's config.json, in the dialects people really have, read into a model's layers."""
