"""The DSL: a model is a Python function over tensors without data, traced to a graph of ops.

types      dtypes and tensor types
graph      Tensor (a value that is not computed yet), Graph (the result of a trace)
ops        every op, declared once: shape rule, NumPy value, lowering, gradient, samples
functions  softmax, rms_norm, rope, attention, ...: plain functions over ops
composite  functions that a trace keeps as one node
nn         modules; a module's attribute path is its parameter's name
trace      Python function -> Graph
evaluate   Graph -> NumPy arrays
gradient   Graph -> its gradients in reverse mode, in ops
optimizers Adam, SGD: from weights and gradients to the next weights, in ops
fused      ops that have a C kernel, whose value, shape rule and gradient are a function's
rewrites   rules that replace parts of a graph, and the table of parts that have a C kernel
storage    how matrices are stored; rewrites/stored_weights has the rules that read them so
matrix_format   formats of matrices of integers, in the order in which kernels read them
kernel_sources  the C kernels by name, and what each is compiled from
mlir       Graphs -> the text of one StableHLO module
registry   ops and functions -> operators.json, docs/operators.md
"""
