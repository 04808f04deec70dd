"""LoRA adapters of a served model: which are loaded, and which a request uses."""
