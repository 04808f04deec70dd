"""Tune LoRA adapters: examples, the compiled program, checkpoints and progress."""
