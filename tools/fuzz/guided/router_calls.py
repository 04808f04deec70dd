"""Calls of the kernels of a router and of the sum of experts: see kernel_calls.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hearthd.models.dsl import functions as f
from tools.fuzz.guided.call_values import Call

if TYPE_CHECKING:
    from tools.fuzz.guided.call_values import Values
    from tools.fuzz.guided.chosen_numbers import Numbers


def router(n: Numbers, v: Values) -> Call:
    """Logits of experts, the largest of them, their factors, or the sum of the experts' results."""
    rows, experts = n.between(1, 32), n.one_of(n.between(1, 70), 128, 1000)
    op = n.one_of("router_logits", "top_indices", "expert_factors", "expert_sum")
    if op == "router_logits":
        columns = n.between(1, 70)
        return Call(op, [v.floats(rows, columns), v.floats(experts, columns)], {}, rows=(0,))
    count = n.between(1, min(experts, 64))
    if op == "expert_sum":
        return Call(op, [v.floats(rows * count, 16 * n.between(1, 9)), v.floats(rows, count)], {})
    logits = v.floats(rows, experts)
    if op == "top_indices":
        return Call(op, [logits], {"count": count})
    attrs: dict[str, Any] = {
        "scores": n.one_of(*f.SCORES),
        "normalized": bool(n.between(0, 1)),
        "sum_offset": n.one_of(0.0, 1e-20, -3.0),
        "min_sum": n.one_of(0.0, 1e-12, 2.0),
        "factor": n.one_of(1.0, 2.5),
    }
    lowest, highest = n.one_of(0, -(2**31)), n.one_of(experts - 1, 2**31 - 1)
    chosen = v.integers(lowest, highest, rows * count).reshape(rows, count)
    scale = [v.floats(experts)] if n.between(0, 1) else []
    return Call(op, [logits, chosen, *scale], attrs, rows=(0, 1))
