"""Compiled programs on a device, by IREE."""
