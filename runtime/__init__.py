"""Running a bundle's entry points. Knows arrays and buffers; knows no text, requests or policy."""
