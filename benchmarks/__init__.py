"""Benchmarks of Hearth beside llama.cpp and PyTorch; each is run as `python -m benchmarks.NAME`."""
