"""SGLang's hierarchical cache (HiCache) under its scheduler: timed copies, and the L3 storage."""
