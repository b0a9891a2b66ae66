"""Where K and V are kept: one file a store, all behind `Store`."""
