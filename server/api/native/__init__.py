"""Hearth's and llama-server's own routes: generate, tokenize and array functions."""
