"""Hugging Face folders that a tool has quantized: `quantization_config` in config.json."""
