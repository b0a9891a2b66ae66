"""Transfers of KV from prefill engines to decode engines."""
