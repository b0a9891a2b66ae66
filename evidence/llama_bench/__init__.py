"""The roofline against published tables of llama-bench, on Apple's GPUs and consumer cards."""
