"""SGLang's hierarchical cache under its scheduler: copies with time, and the storage behind."""
