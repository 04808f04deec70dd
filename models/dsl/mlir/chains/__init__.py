"""Chains: kernels of a graph that one dispatch calls.

After a dispatch IREE's workers wait for each other, which takes longer than most kernels of a
decode step. Inside a chain they count calls instead (models/dsl/kernels/chain.h). For example, a
layer of SmolLM2 has thirteen kernels in a decode step, and the kernels of all layers are one stage:

    compiled ops    the norm of the embedding, cosines and sines for RoPE
    -------------------------------------------------------------------------- the stage begins
    level 0    linear_quantized                      queries, keys and values
    level 1    rope, rope, write_f16_rows            queries; keys; values
    level 2    write_f16_rows                        keys                         segment 0
    level 3    cached_attention                      two calls: scores, values
    level 4    linear_quantized
    level 5    add_norm
    -------------------------------------------------------------------------- one tensor crosses
    level 6    linear_quantized, linear_quantized    gate; up
    level 7    gated_silu                                                         segment 1
    level 8    linear_quantized                      down
    level 9    add_norm
    -------------------------------------------------------------------------- one tensor crosses
    level 10   linear_quantized                      the next layer               segment 2
    ...

A chain takes segments until it would be too large: here three, so a layer and a half are one
dispatch.

The modules use five words:

    view     a tensor that is a contiguous part of results, in another shape, or results side by
             side: nothing computes it
    stage    kernels, and views of their results, that can run without a compiled op between them.
             Its number is how often, on any path to it, a compiled op follows a kernel
    level    kernels of a stage that read only earlier levels, so they can run at the same time
    segment  consecutive levels of a stage between two boundaries that the fewest tensors cross
    address  an argument of a chain, or its results, and an offset in them

`stages` finds the kernels that can share a dispatch, `segments` divides them into chains, and
`addresses` gives each result its address. `schedule` puts chains and compiled ops in order.
`chain` writes a chain as MLIR, and `c_function` as C.
"""
