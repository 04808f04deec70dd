"""Every op of the DSL. Each is declared once, in one of these files; REGISTRY holds them all.

Values are positional, attributes are keywords. There is no implicit broadcasting and no dtype
promotion: `broadcast` and `convert` are ops, so most shape rules read "all the same".
"""

from models.dsl.ops.creation import constant, full, full_like, iota
from models.dsl.ops.elementwise import (
    absolute,
    add,
    barrier,
    compare,
    convert,
    cosine,
    divide,
    exponential,
    logical_and,
    maximum,
    multiply,
    negate,
    remainder,
    round_nearest_even,
    select,
    sign,
    sine,
    sqrt,
    subtract,
    tanh,
)
from models.dsl.ops.indexing import gather, scatter
from models.dsl.ops.linear import dot_general, project
from models.dsl.ops.record import REGISTRY, Lowering, NoGradient, Op, Sample
from models.dsl.ops.reduction import reduce_max, reduce_sum
from models.dsl.ops.shape import broadcast, concatenate, pad, reshape, slice_, transpose

__all__ = [
    "REGISTRY",
    "Lowering",
    "NoGradient",
    "Op",
    "Sample",
    "absolute",
    "add",
    "barrier",
    "broadcast",
    "compare",
    "concatenate",
    "constant",
    "convert",
    "cosine",
    "divide",
    "dot_general",
    "exponential",
    "full",
    "full_like",
    "gather",
    "iota",
    "logical_and",
    "maximum",
    "multiply",
    "negate",
    "pad",
    "project",
    "reduce_max",
    "reduce_sum",
    "remainder",
    "reshape",
    "round_nearest_even",
    "scatter",
    "select",
    "sign",
    "sine",
    "slice_",
    "sqrt",
    "subtract",
    "tanh",
    "transpose",
]
