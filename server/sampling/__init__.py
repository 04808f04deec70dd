"""Sampling: penalties, cut-offs and a grammar's constraint turn logits into the next token."""
