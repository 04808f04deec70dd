"""One engine at a time, in a process of its own: Hearth, llama.cpp or PyTorch."""
