"""Write tensors of gated delta nets as llama.cpp's converter does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from hearthd.models.decoder.recurrent.delta_net import DeltaNetConfig

    Array = NDArray[Any]


# As the converter names the parts of a layer that predicts further tokens.
_PREDICTING = {
    "fc": "nextn.eh_proj",
    "pre_fc_norm_embedding": "nextn.enorm",
    "pre_fc_norm_hidden": "nextn.hnorm",
    "norm": "nextn.shared_head_norm",
}


def _predicting(name: str, layers: int) -> str:
    """The name of a tensor; the layer that predicts further tokens is the last block."""
    module, _, inner = name.partition(".")
    if module != "mtp":
        return name
    part, _, suffix = inner.rpartition(".")
    if part in _PREDICTING:
        return f"blk.{layers}.{_PREDICTING[part]}.{suffix}"
    return inner.replace("layers.0.", f"model.layers.{layers}.", 1)


def delta_net(name: str, values: Array, config: DeltaNetConfig) -> Iterator[tuple[str, Array]]:
    """A tensor of Qwen3.5 as convert_hf_to_gguf.py writes it.

    Value head k * r + j becomes j * J + k, for J key heads, each of r value heads.
    """
    groups, width = config.key_heads, config.value_width
    keys = 2 * groups * config.key_width

    def tiled(rows: Array, size: int) -> Array:
        heads = rows.reshape(groups, -1, size, *rows.shape[1:])
        return np.ascontiguousarray(heads.swapaxes(0, 1)).reshape(rows.shape)

    name = _predicting(name, config.layers)
    part = name.rpartition("linear_attn.")[2]
    if name.endswith("norm.weight") and part != "norm.weight":
        values = values + np.float32(1)
    if part in ("in_proj_qkv.weight", "conv1d.weight"):
        values = np.concatenate([values[:keys], tiled(values[keys:], width)])
    elif part == "in_proj_z.weight":
        values = tiled(values, width)
    elif part in ("in_proj_a.weight", "in_proj_b.weight", "A_log", "dt_bias"):
        values = tiled(values, 1)
    elif part == "out_proj.weight":
        values = np.ascontiguousarray(tiled(np.ascontiguousarray(values.T), width).T)
    if part == "A_log":
        values = -np.exp(values)
    if part == "conv1d.weight":
        values = values.squeeze(1)
    yield name.replace("dt_bias", "dt_proj.bias"), values


def grouped_delta_net(
    name: str, values: Array, config: DeltaNetConfig
) -> Iterator[tuple[str, Array]]:
    """The tensors that convert_hf_to_gguf.py makes of one of Qwen3-Next: value heads stay in order.

    The rows of queries, keys and values, key head after key head, become a tensor each.
    """
    name, joined = _predicting(name, config.layers), "in_proj_qkvz"
    if joined not in name:
        part = name.rpartition("linear_attn.")[2]
        if name.endswith("norm.weight") and part != "norm.weight":
            values = values + np.float32(1)
        elif part == "A_log":
            values = -np.exp(values)
        elif part == "conv1d.weight":
            values = values.squeeze(1)
        yield name.replace("dt_bias", "dt_proj.bias"), values
        return
    heads = values.reshape(config.key_heads, -1, values.shape[1])
    keys, width = 2 * config.key_width, heads.shape[1]
    value_rows = (width - keys) // 2
    cuts = (config.key_width, keys, keys + value_rows)
    *qkv, z = (part.reshape(-1, values.shape[1]) for part in np.split(heads, cuts, axis=1))
    yield name.replace(joined, "in_proj_qkv"), np.concatenate(qkv)
    yield name.replace(joined, "in_proj_z"), z
