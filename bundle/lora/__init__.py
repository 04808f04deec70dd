"""LoRA adapters in PEFT's format, for the baker and the server: NumPy and the standard library."""
