"""SGLang's hierarchical cache (HiCache, 0.5.23): a radix tree over device and host memory."""
