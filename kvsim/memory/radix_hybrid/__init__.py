"""SGLang's radix tree for models with sliding windows or recurrent states."""
