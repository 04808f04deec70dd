"""The tokenizer and the chat template of a bundle."""
