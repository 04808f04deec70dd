"""Sampling: penalties, cut-offs and a constraint of a grammar turn logits into the next token."""
