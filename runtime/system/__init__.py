"""The machine: its CPU, memory, disk and signals."""
