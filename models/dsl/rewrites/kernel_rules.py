"""The parts of a graph that have a C kernel of their own. The table is KERNEL_RULES.

A model is written in plain functions. Where shapes do not allow a kernel, they stay.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hearthd.models.dsl import functions as f
from hearthd.models.dsl import fused, ops
from hearthd.models.dsl.rewrites.rewrite import Node, Part, Rule, node, variables
from hearthd.models.dsl.types import DType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from hearthd.models.dsl.graph import Tensor
    from hearthd.models.dsl.ops.record import Op
    from hearthd.models.dsl.rewrites.rewrite import Pattern, Variable


def norm(x: Pattern, weight: Pattern) -> Node:
    """The pattern of RMSNorm."""
    return node(f.rms_norm.op, x, weight, eps="eps")


h, y, after, before, weight, cosine, sine = variables("h y after before weight cosine sine")
query, key, value, start, count, sinks = variables("query key value start count sinks")
key_scale, value_scale, cache, places = variables("key_scale value_scale cache places")
states, positions, row, bias, rate, chosen = variables("states positions row bias rate chosen")
decay, probe, removed = variables("decay probe removed")
heads = Part(ops.slice_, "x", "heads", is_strided=True)
some_heads = Part(ops.slice_, "x", "heads", "rows")
some_columns = Part(ops.slice_, "h", "columns", "rows")
# Columns of a convolution's result: queries, keys and values; and of all rows of products.
of_result = tuple(Part(ops.slice_, name, f"{name}_columns") for name in ("query", "key", "value"))
of_products = tuple(Part(ops.slice_, name, f"{name}_columns", "rows") for name in "ab")
# Columns of queries, keys, values, time steps and gates of a sequence.
of_sequence = tuple(
    Part(ops.slice_, name, f"{name}_columns", "rows") for name in ("query", "key", "value", *"ab")
)
sum_of_normed = node(ops.add, h, norm(y, after))
plain_sum = node(ops.add, h, y)
router = {name: name for name in ("scores", "normalized", "sum_offset", "min_sum", "factor")}
scaled_sum = node(ops.add, h, node(ops.multiply, y, node(ops.full, value="scale")))


def both(pair: Tensor) -> tuple[Tensor, Tensor]:
    """The sum, and the sum normalized, of one kernel's result."""
    return f.at(pair, 0), f.at(pair, 1)


def attention_rules(op: Op, kernel: Callable[..., Tensor], *inputs: Variable) -> Iterator[Rule]:
    """The rules of attention over a cache, without sinks and with them."""
    attributes = {name: name for name in ("keys", "window", "scale", "cap", "alone")}
    for operands in (inputs, (*inputs, sinks)):

        def replacement(
            names: tuple[str, ...] = tuple(operand.name for operand in operands), **bound: Any
        ) -> tuple[Tensor, ...]:
            tensors = [bound.pop(name) for name in names]
            return (kernel(*tensors, **bound),)

        yield Rule(
            name=op.name, pattern=(node(op, *operands, **attributes),), replacement=replacement
        )


def recurrence(
    kernel: Callable[..., Tensor], parts: Sequence[Part] = (*of_result, *of_products)
) -> Callable[..., tuple[Tensor, ...]]:
    """The replacement of a recurrence, on what `parts` match."""

    def replacement(
        states: Tensor, positions: Tensor, rows: tuple[int, int], **bound: Any
    ) -> tuple[Tensor, ...]:
        tensors = [bound.pop(part.name) for part in parts]
        columns = tuple(bound.pop(part.range_name) for part in parts)
        numbers = [bound.pop(name) for name in ("bias", "rate", "weight") if name in bound]
        inputs = (states, positions, *tensors, *numbers)
        return (kernel(*inputs, columns=columns, rows=rows, **bound),)

    return replacement


# Rules of every precision: a kernel computes each token alike, so that a verification has the bits
# of decodes, and a prompt the bits of its chunks, whatever their sizes.
RECURRENT_RULES = (
    Rule(
        name="row_before",
        pattern=(node(f.row_before.op, states, positions, ring="ring"),),
        replacement=lambda states, positions, ring: (
            fused.row_before(states, positions, ring=ring),
        ),
    ),
    *(
        Rule(
            name="causal_conv",
            pattern=(node(f.causal_conv.op, row, some_columns, *weights),),
            replacement=lambda row, h, rows, columns, **weights: (
                fused.causal_conv(row, h, *weights.values(), rows=rows, columns=columns),
            ),
        )
        for weights in ((weight,), (weight, bias))
    ),
    Rule(
        name="latest_inputs",
        pattern=(
            node(f.latest_inputs.op, states, positions, row, some_columns, every="every"),
        ),
        replacement=lambda states, positions, row, h, **attributes: (
            fused.latest_inputs(states, positions, row, h, **attributes),
        ),
    ),
    Rule(
        name="gated_delta_rule",
        pattern=(
            node(
                f.gated_delta_rule.op, states, positions, *of_result, *of_products, bias, rate,
                groups="groups", takes_turns="takes_turns", ring="ring", every="every",
            ),
        ),
        replacement=recurrence(fused.gated_delta_rule),
    ),
    Rule(
        name="channel_delta_rule",
        pattern=(
            node(
                f.channel_delta_rule.op, states, positions, query, key, value, decay, probe,
                removed, heads="heads", ring="ring", every="every",
            ),
        ),
        replacement=lambda heads, ring, every, **operands: (
            fused.channel_delta_rule(*operands.values(), heads=heads, ring=ring, every=every),
        ),
    ),
    Rule(
        name="ssm_scan",
        pattern=(
            node(
                f.ssm_scan.op, states, positions, *of_result, *of_products, bias, rate, weight,
                groups="groups", ring="ring", every="every",
            ),
        ),
        replacement=recurrence(fused.ssm_scan),
    ),
    Rule(
        name="selective_scan",
        pattern=(
            node(
                f.selective_scan.op, states, positions, *of_sequence, bias, rate, weight,
                ring="ring", every="every",
            ),
        ),
        replacement=recurrence(fused.selective_scan, of_sequence),
    ),
)  # fmt: skip
# Each row: what is matched, and what replaces it. Earlier rows go first.
KERNEL_RULES = (
    *RECURRENT_RULES,
    Rule(
        name="residual_norm",  # Gemma: the sublayer's norm, the add, the next sublayer's norm
        pattern=(sum_of_normed, norm(sum_of_normed, before)),
        replacement=lambda h, y, after, before, eps: both(
            fused.residual_norm(h, y, after, before, eps=eps)
        ),
    ),
    Rule(
        name="add_norm",  # Granite: the result times a number, the add, the next sublayer's norm
        pattern=(scaled_sum, norm(scaled_sum, before)),
        replacement=lambda h, y, before, scale, eps: both(
            fused.add_norm(h, y, before, scale=scale, eps=eps)
        ),
    ),
    Rule(
        name="add_norm",  # Llama: the add, the next sublayer's norm
        pattern=(plain_sum, norm(plain_sum, before)),
        replacement=lambda h, y, before, eps: both(fused.add_norm(h, y, before, eps=eps)),
    ),
    Rule(
        name="gated_norm",  # gated delta nets: the norm of their outputs, and a gate
        pattern=(node(ops.multiply, node(f.silu.op, h), norm(y, weight)),),
        replacement=lambda h, y, weight, eps: (fused.gated_norm(h, y, weight, eps=eps),),
    ),
    Rule(
        name="grouped_rms_norm",  # Mamba-2: the norm of its outputs
        pattern=(node(f.grouped_rms_norm.op, h, weight, groups="groups", eps="eps"),),
        replacement=lambda h, weight, groups, eps: (
            fused.grouped_rms_norm(h, weight, groups=groups, eps=eps),
        ),
    ),
    Rule(
        name="norm_rope",  # Gemma: the norm of queries or keys, then RoPE
        pattern=(node(f.rope.op, norm(heads, weight), cosine, sine),),
        replacement=lambda x, heads, weight, cosine, sine, eps: (
            fused.norm_rope(x, weight, cosine, sine, heads=heads, eps=eps),
        ),
    ),
    Rule(
        name="rope",  # Llama: RoPE
        pattern=(node(f.rope.op, heads, cosine, sine),),
        replacement=lambda x, heads, cosine, sine: (fused.rope(x, cosine, sine, heads=heads),),
    ),
    Rule(
        name="gated_heads",  # Qwen3.5: the gate of attention
        pattern=(node(f.gated_heads.op, heads, y),),
        replacement=lambda x, heads, y: (fused.gated_heads(x, y, heads=heads),),
    ),
    *attention_rules(f.cached_attention.op, fused.cached_attention, query, key, value, start),
    *attention_rules(
        f.int8_cache_attention.op, fused.int8_cache_attention,
        query, key, value, key_scale, value_scale, start,
    ),
    *attention_rules(
        f.int4_cache_attention.op, fused.int4_cache_attention,
        query, key, value, key_scale, value_scale, start,
    ),
    Rule(
        name="full_attention",  # of an encoder, and of a decoder to its states
        pattern=(node(f.full_attention.op, query, key, value, scale="scale"),),
        replacement=lambda query, key, value, scale: (
            fused.full_attention(
                query, key, value,
                ops.full(shape=(1,), dtype=DType.I32, value=key.shape[0] - 1),
                scale=scale, counted=False,
            ),
        ),
    ),
    Rule(
        name="full_attention",  # of a tower that reads images of many sizes
        pattern=(node(f.full_attention.op, query, key, value, count, scale="scale"),),
        replacement=lambda query, key, value, count, scale: (
            fused.full_attention(query, key, value, count + -1, scale=scale, counted=True),
        ),
    ),
    Rule(
        name="gated_silu",  # Llama: the middle of its feed-forward layer
        pattern=(node(ops.multiply, node(f.silu.op, h), y),),
        replacement=lambda h, y: (fused.gated_silu(h, y),),
    ),
    Rule(
        name="gated_gelu_tanh",  # Gemma
        pattern=(node(ops.multiply, node(f.gelu_tanh.op, h), y),),
        replacement=lambda h, y: (fused.gated_gelu_tanh(h, y),),
    ),
    Rule(
        name="clamped_swiglu",  # gpt-oss
        pattern=(node(f.clamped_swiglu.op, h, y, limit="limit", slope="slope"),),
        replacement=lambda h, y, limit, slope: (
            fused.clamped_swiglu(h, y, limit=limit, slope=slope),
        ),
    ),
    Rule(
        name="squared_relu",  # Nemotron
        pattern=(node(f.squared_relu.op, h),),
        replacement=lambda h: (fused.squared_relu(h),),
    ),
    Rule(
        name="router_logits",
        pattern=(node(f.router_logits.op, h, weight),),
        replacement=lambda h, weight: (fused.router_logits(h, weight),),
    ),
    Rule(
        name="top_indices",  # the choice of experts
        pattern=(node(f.top_indices.op, h, count="count"),),
        replacement=lambda h, count: (fused.top_indices(h, count=count),),
    ),
    Rule(
        name="expert_factors",
        pattern=(node(f.expert_factors.op, h, chosen, **router),),
        replacement=lambda h, chosen, **router: (fused.expert_factors(h, chosen, **router),),
    ),
    Rule(
        name="expert_factors",  # Gemma 4: with a scale for each expert
        pattern=(node(f.expert_factors.op, h, chosen, weight, **router),),
        replacement=lambda h, chosen, weight, **router: (
            fused.expert_factors(h, chosen, weight, **router),
        ),
    ),
    Rule(
        name="expert_sum",
        pattern=(node(f.expert_sum.op, h, y),),
        replacement=lambda h, y: (fused.expert_sum(h, y),),
    ),
    Rule(
        name="write_f16_rows",
        pattern=(node(f.write_f16_rows.op, cache, places, some_heads),),
        replacement=lambda cache, places, x, heads, rows: (
            fused.write_f16_rows(cache, places, x, rows=rows, heads=heads),
        ),
    ),
    Rule(
        name="write_int8_rows",
        pattern=(node(f.write_int8_rows.op, cache, places, h),),
        replacement=lambda cache, places, h: (fused.write_int8_rows(cache, places, h),),
    ),
    Rule(
        name="write_row_scales",
        pattern=(node(f.write_row_scales.op, cache, places, h),),
        replacement=lambda cache, places, h: (fused.write_row_scales(cache, places, h),),
    ),
    Rule(
        name="write_packed_rows",
        pattern=(node(f.write_packed_rows.op, cache, places, h, bits="bits"),),
        replacement=lambda cache, places, h, bits: (
            fused.write_packed_rows(cache, places, h, bits=bits),
        ),
    ),
    Rule(
        name="write_packed_scales",
        pattern=(node(f.write_packed_scales.op, cache, places, h, bits="bits"),),
        replacement=lambda cache, places, h, bits: (
            fused.write_packed_scales(cache, places, h, bits=bits),
        ),
    ),
    Rule(
        name="rotate_heads",  # of queries, for a cache of 4 bits
        pattern=(node(f.rotate_heads.op, h),),
        replacement=lambda h: (fused.rotate_heads(h),),
    ),
)  # fmt: skip
