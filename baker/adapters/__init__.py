"""LoRA adapters in PEFT's format: reading, writing, and merging them into weights."""
