"""`hearth compare`: how far the predictions of two models differ, position by position."""
