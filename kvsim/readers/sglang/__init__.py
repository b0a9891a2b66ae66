"""Files of SGLang servers."""
