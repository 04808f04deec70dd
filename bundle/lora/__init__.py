"""LoRA adapters of PEFT and llama.cpp, for baker and server: NumPy and the standard library."""
