"""Tests of the measurement of calls."""
