"""Measure how well the models of servers answer, with published tasks."""
