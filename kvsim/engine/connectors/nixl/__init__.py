"""vLLM's NixlConnector (0.33.0, distributed/kv_transfer/kv_connector/v1/nixl): a decode engine
reads the KV of prompts out of the blocks of prefill engines.
"""
