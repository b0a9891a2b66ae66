"""Files of TensorRT-LLM servers."""
