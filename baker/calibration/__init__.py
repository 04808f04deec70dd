"""Rounding of the layers' weights by what a calibration text has them compute."""
