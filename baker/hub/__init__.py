"""Models on the Hugging Face Hub: what a reference names, whether it fits, and its download."""
