"""Graphs as the text of a module in MLIR, which the compiler reads."""
