"""KV on its way from engines that compute prompts to engines that decode."""
