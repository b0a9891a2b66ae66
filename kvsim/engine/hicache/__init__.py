"""SGLang's hierarchical cache (HiCache): timed copies to and from host memory, and the L3
storage.
"""
