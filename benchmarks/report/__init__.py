"""Figures, tables, plots and the description of the machine."""
