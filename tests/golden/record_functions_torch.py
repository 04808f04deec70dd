"""Record PyTorch's values and gradients for tests/models/dsl/functions/function_cases.py.

    python -m tests.golden.record_functions_torch

Recorded with torch 2.13.0, in functions_torch.npz: for each case the value and then the gradient of
each input, in float64, under the names CASE.0, CASE.1 and so on. They stand in for PyTorch where it
is not installed; where it is, a test compares them.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from tests.models.dsl.functions.function_cases import (
    CONV1D,
    CONV2D,
    GOLDEN,
    POOL,
    RECURRENCE_START,
    TRANSPOSED,
    inputs,
    statistics,
    upstream,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.models.dsl.functions.function_cases import Array

F = torch.nn.functional


def _trained(result: int) -> Callable[..., Any]:
    def function(x: Any, weight: Any, bias: Any) -> Any:
        running = [torch.tensor(one) for one in statistics()]
        value = F.batch_norm(x, *running, weight, bias, True, 0.3, 0.1)
        return (value, *running)[result]

    return function


def _delta_rule(states: Any, query: Any, key: Any, value: Any, *others: Any, ring: int) -> Any:
    """Equation 10 of "Gated Delta Networks" (Yang et al., 2024), token by token."""
    a, b, bias, rates = others
    rows, outputs = [*states[:ring]], []
    state = rows[(RECURRENCE_START - 1) % ring].reshape(4, 3, 4)
    heads = [0, 1, 0, 1] if ring > len(value) else [0, 0, 1, 1]
    query, key = (y.reshape(-1, 2, 3)[:, heads] for y in (query, key))
    query, key = (y / (y.square().sum(2, keepdim=True) + 1e-6).sqrt() for y in (query, key))
    decay = (F.softplus(a + bias) * rates * rates * -0.2).exp()
    values = value.reshape(-1, 4, 4)
    tokens = zip(query * 3**-0.5, key, values, decay, b.sigmoid(), strict=True)
    for position, (q, k, v, kept, rate) in enumerate(tokens, RECURRENCE_START):
        state = state * kept[:, None, None]
        wrong = v - torch.einsum("hkv,hk->hv", state, k)
        state = state + torch.einsum("hk,hv->hkv", k, wrong * rate[:, None])
        outputs.append(torch.einsum("hkv,hk->hv", state, q).flatten())
        if ring > len(query) or position == RECURRENCE_START + len(query) - 1:
            rows[position % ring] = state.flatten()
    return torch.cat([*outputs, *rows])


def _ssm_scan(states: Any, query: Any, key: Any, x: Any, *others: Any, ring: int) -> Any:
    """Equation 16 of "Transformers are SSMs" (Dao and Gu, 2024), token by token."""
    steps, gate, bias, rates, skip = others
    rows, outputs = [*states[:ring]], []
    state = rows[(RECURRENCE_START - 1) % ring].reshape(4, 3, 4)
    query, key = (y.reshape(-1, 2, 3).repeat_interleave(2, 1) for y in (query, key))
    inputs = x.reshape(-1, 4, 4)
    tokens = zip(query, key, inputs, F.softplus(steps + bias), F.silu(gate), strict=True)
    for position, (q, k, v, dt, z) in enumerate(tokens, RECURRENCE_START):
        decay = (dt * rates * rates * -0.2).exp()
        state = state * decay[:, None, None] + torch.einsum("hk,hv->hkv", k, v * dt[:, None])
        output = torch.einsum("hkv,hk->hv", state, q) + skip[:, None] * v
        outputs.append(output.flatten() * z)
        if ring > len(query) or position == RECURRENCE_START + len(query) - 1:
            rows[position % ring] = state.flatten()
    return torch.cat([*outputs, *rows])


def _selective_scan(states: Any, query: Any, key: Any, x: Any, *others: Any, ring: int) -> Any:
    """Equation 2 of "Mamba" (Gu and Dao, 2023), with time steps and gates, token by token."""
    steps, gate, bias, rates, skip = others
    rows, outputs = [*states[:ring]], []
    state = rows[(RECURRENCE_START - 1) % ring].reshape(4, 12)
    tokens = zip(query, key, x, F.softplus(steps + bias), F.silu(gate), strict=True)
    for position, (q, k, v, dt, z) in enumerate(tokens, RECURRENCE_START):
        state = state * (dt * rates * rates * -0.2).exp() + torch.outer(k, v * dt)
        outputs.append((q @ state + skip * v) * z)
        if ring > len(query) or position == RECURRENCE_START + len(query) - 1:
            rows[position % ring] = state.flatten()
    return torch.cat([*outputs, *rows])


def _channel_delta_rule(states: Any, value: Any, *others: Any, ring: int) -> Any:
    """Equation 1 of "Kimi Linear" (2025), with what is removed apart from what is added."""
    rows, outputs = [*states[:ring]], []
    state = rows[(RECURRENCE_START - 1) % ring].reshape(2, 4, 3)
    tokens = zip(value, *others, strict=True)
    for position, token in enumerate(tokens, RECURRENCE_START):
        v, q, k, decay, probe, removed = (x.reshape(2, -1) for x in token)
        state = state * (-decay * decay).exp()[..., None]
        found = torch.einsum("hkv,hk->hv", state, probe * 0.3)
        state = state + k[..., None] * v[:, None] + 0.3 * removed[..., None] * found[:, None]
        outputs.append(torch.einsum("hkv,hk->hv", state, q).flatten())
        if ring > len(value) or position == RECURRENCE_START + len(value) - 1:
            rows[position % ring] = state.flatten()
    return torch.cat([*outputs, *rows])


THEIRS: dict[str, Callable[..., Any]] = {
    "conv1d": lambda x, w, b: F.conv1d(x, w, b, **CONV1D),
    "conv2d": lambda x, w: F.conv2d(x, w, **CONV2D),
    "conv_transpose1d": lambda x, w, b: F.conv_transpose1d(x, w, b, **TRANSPOSED),
    "max_pool2d": lambda x: F.max_pool2d(x, 3, dilation=2, **POOL),
    "avg_pool2d": lambda x: F.avg_pool2d(x, 3, **POOL),
    "upsample2d_nearest": lambda x: F.interpolate(x, scale_factor=3, mode="nearest"),
    "upsample2d_bilinear": lambda x: F.interpolate(x, scale_factor=3, mode="bilinear"),
    "layer_norm": lambda x, w, b: F.layer_norm(x, (5,), w, b, 0.1),
    "rms_norm": lambda x, w: F.rms_norm(x, (5,), w, 0.1),
    "group_norm": lambda x, w, b: F.group_norm(x, 2, w, b, 0.1),
    "batch_norm": lambda x, w, b: F.batch_norm(x, *map(torch.tensor, statistics()), w, b, eps=0.1),
    **{f"batch_norm_training_{result}": _trained(result) for result in range(3)},
    "relu": F.relu,
    "softplus": F.softplus,
    "squared_relu": lambda x: F.relu(x) ** 2,
    "grouped_rms_norm": lambda x, w: (
        F.rms_norm(x.reshape(3, 2, 3), (3,), eps=0.1).reshape(3, 6) * w
    ),
    "delta_rule_chunks": partial(_delta_rule, ring=2),
    "delta_rule_steps": partial(_delta_rule, ring=5),
    "ssm_scan_chunks": partial(_ssm_scan, ring=2),
    "ssm_scan_steps": partial(_ssm_scan, ring=5),
    "selective_scan_chunks": partial(_selective_scan, ring=2),
    "selective_scan_steps": partial(_selective_scan, ring=5),
    "channel_delta_rule_chunks": partial(_channel_delta_rule, ring=2),
    "channel_delta_rule_steps": partial(_channel_delta_rule, ring=5),
    "leaky_relu": lambda x: F.leaky_relu(x, 0.2),
    "elu": lambda x: F.elu(x, 0.7),
    "sigmoid": torch.sigmoid,
    "gated_heads": lambda gate, x: torch.sigmoid(gate) * x,
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "clamp": lambda x: torch.clamp(x, -0.5, 0.75),
    "log2": lambda x: torch.log2(x * x + 0.1),
    "log10": lambda x: torch.log10(x * x + 0.1),
    "power": lambda x, y: torch.pow(x * x + 0.1, y),
    "reversed_operators": lambda x: 2.0**x - 3.0 / (7.0 - x),
    "expm1": torch.expm1,
    "erf": torch.erf,
    "softmax": lambda x: F.softmax(x, 1),
    "log_softmax": lambda x: F.log_softmax(x, 0),
    "mean": lambda x: x.mean(1),
    "variance": lambda x: torch.var(x, (0, 2), correction=1),
    "variance_of_all": lambda x: torch.var(x, 0, correction=0),
    "matmul": torch.matmul,
    "linear": F.linear,
    "unfold": lambda x: x.unfold(1, 3, 2),
    "stack": lambda x, y: torch.stack((x, y), dim=1),
    "chunk": lambda x: torch.chunk(x, 3, 0)[2],
    "split": lambda x: torch.split(x, [2, 1, 4], 0)[2],
    "permute": lambda x: x.permute(2, 0, 1),
    "flatten": lambda x: x.flatten(1, -2),
    "tril": lambda x: torch.tril(x, 1),
    "pad2d": lambda x: F.pad(x, (1, 0, 2, 3), value=0.5),
    "gather": lambda x: torch.index_select(x, 1, torch.tensor([2, 0, 2])),
    "cross_entropy": lambda x: F.cross_entropy(x, torch.tensor([2, 0, 1])),
    "cross_entropy_per_row": lambda x: F.cross_entropy(
        x, torch.tensor([2, 0, 1]), reduction="none"
    ),
    "mean_squared_error": F.mse_loss,
    "attention": lambda q, k, v: F.scaled_dot_product_attention(
        q, k, v, is_causal=True, scale=0.7, enable_gqa=True
    ).transpose(1, 2),
}


def torch_results(name: str) -> list[Array]:
    """PyTorch's value of a case, and its gradients; no gradient is zero."""
    tensors = [torch.tensor(array, requires_grad=True) for array in inputs(name)]
    value = THEIRS[name](*tensors)
    if value.requires_grad:
        value.backward(torch.tensor(upstream(tuple(value.shape))))
    return [value.detach().numpy()] + [
        (torch.zeros_like(x) if x.grad is None else x.grad).numpy() for x in tensors
    ]


def main() -> None:
    """Write the file."""
    arrays: dict[str, Any] = {
        f"{name}.{i}": array for name in THEIRS for i, array in enumerate(torch_results(name))
    }
    np.savez_compressed(GOLDEN, **arrays)


if __name__ == "__main__":
    main()
