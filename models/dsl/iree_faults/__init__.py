"""Faults of the compiler, and how programs are written so that they do not meet them.

A fault has one function, with the name of its report in docs/iree-reports, which has a program that
shows it; `large_vector_sizes` has no small program yet. tests/models/dsl/test_iree_faults.py
compiles each report, and fails when the compiler is mended: then the function can go.

Most faults are avoided by a barrier: the compiler fuses nothing across it. `barriers` asks the
functions in `products` and `moves` which operands and results need one. Those in `updates`,
`powers`, `merged_axes` and `forms` write an op or a tensor in another way, and those in `gradients`
find barriers of gradients.
"""

# The version that has these faults.
IREE_VERSION = "3.13.0"
