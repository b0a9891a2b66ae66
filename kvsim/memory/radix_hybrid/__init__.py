"""SGLang's radix tree where not all layers keep all tokens: sliding windows, recurrent states."""
