"""vLLM's native offloading connector: chunks of KV in host memory, and further tiers."""
