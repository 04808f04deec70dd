"""Faults of the compiler, and how programs are written so that they avoid them.

Each fault that programs avoid has one function, with the name of its report in
docs/iree-reports.md; docs/iree-reports/NAME.mlir shows the fault, but `large_vector_sizes` has no
small program yet. The nightly tests of tests/models/dsl/test_iree_faults.py compile each report,
and fail when the compiler is mended: then the function can go.

Most faults are avoided by a barrier: the compiler fuses nothing across it. `barriers` asks the
functions in `products` and `moves` which operands and results need one. `updated_argument` finds
the results of a function that need one, and `gradients` the values in a gradient. The other
functions replace an op or a tensor by an equivalent form.
"""

# The version that has these faults.
IREE_VERSION = "3.13.0"
