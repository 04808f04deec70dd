"""`hearth compare`: compare the predictions of two models, position by position."""
