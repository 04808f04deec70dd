"""Comparisons of Hearth with llama.cpp and PyTorch. Run each as `python -m benchmarks.NAME`."""
