"""The tensor of queries, keys and values of a GGUF file, as llama.cpp's converter writes it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import gguf
import numpy as np

from hearthd.models.decoder.experts import ExpertsConfig
from tests.models.families.split_gguf import copy_keys

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from hearthd.models.decoder.config.decoder_config import DecoderConfig

# Parts of the names of tensors of queries, keys and values.
_OF_HEADS = ("query_key_value", "attention.wqkv", "W_pack")
# Architectures whose GGUF files have the tensor of folders.
_AS_IN_FOLDERS = ("bailingmoe2",)


def joins_heads(architecture: str, name: str) -> bool:
    """Whether the converter changes a tensor of queries, keys and values."""
    return architecture not in _AS_IN_FOLDERS and any(part in name for part in _OF_HEADS)


def gpt2(name: str, values: NDArray[Any]) -> Iterator[tuple[str, NDArray[Any]]]:
    """A tensor of GPT-2, whose matrices of layers have rows as columns."""
    is_matrix = ".c_" in name and values.ndim > 1
    yield name, np.ascontiguousarray(values.T) if is_matrix else values


def openelm(name: str, values: NDArray[Any]) -> Iterator[tuple[str, NDArray[Any]]]:
    """A tensor of OpenELM, whose gates are in one matrix with what they multiply."""
    if "ffn.proj_1" not in name:
        yield name, values
        return
    block = name.replace("transformer", "model")
    for part, rows in zip(("gate", "up"), np.split(values, 2), strict=True):
        yield block.replace("ffn.proj_1", f"mlp.{part}_proj"), rows


def refact(name: str, values: NDArray[Any]) -> Iterator[tuple[str, NDArray[Any]]]:
    """A tensor of Refact, which joins keys with values and gates with what they multiply."""
    block = name.replace("transformer.h", "model.layers")
    for joined, parts in (
        ("attn.kv", ("self_attn.k_proj", "self_attn.v_proj")),
        ("mlp.gate_up_proj", ("mlp.gate_proj", "mlp.up_proj")),
        ("attn.q", ("self_attn.q_proj",)),
    ):
        if f".{joined}." in name:
            for part, rows in zip(parts, np.split(values, len(parts)), strict=True):
                yield block.replace(joined, part), rows
            return
    yield name, values


def heads_in_gguf(
    name: str, values: NDArray[Any], config: DecoderConfig
) -> Iterator[tuple[str, NDArray[Any]]]:
    """What the converter makes of a tensor of queries, keys and values: one tensor, or three."""
    is_split = "query_key_value" not in name or isinstance(config, ExpertsConfig)  # of Ling 1
    if not is_split:
        yield name, joined_heads(values, config)
        return
    rows = joined_heads(values, config) if "wqkv" in name else values
    widths = [count * config.head_dim for count in (config.heads, config.kv_heads)]
    for part, heads in zip("qkv", np.split(rows, np.cumsum(widths)), strict=True):
        yield re.sub(r"\w+\.(?:wqkv|W_pack|query_key_value)", f"self_attn.{part}_proj", name), heads


def joined_heads(values: NDArray[Any], config: DecoderConfig) -> NDArray[Any]:
    """All queries, then all keys and all values, of rows or a bias.

    In folders, the queries that share a key follow each other, then that key and its value.
    """
    shared = config.heads // config.kv_heads
    groups = values.reshape(config.kv_heads, shared + 2, config.head_dim, *values.shape[1:])
    parts = (groups[:, :shared], groups[:, shared], groups[:, shared + 1])
    return np.concatenate([part.reshape(-1, *values.shape[1:]) for part in parts])


def with_joined_heads(path: Path) -> Path:
    """Write a file beside another one, as older converters did; returns its path."""
    reader, joined = gguf.GGUFReader(path), path.with_name("joined.gguf")
    writer = gguf.GGUFWriter(joined, reader.fields["general.architecture"].contents())
    copy_keys(reader, writer)
    tensors = {tensor.name: tensor.data for tensor in reader.tensors}
    for name, values in tensors.items():
        if ".attn_q." in name:
            parts = [tensors[name.replace("attn_q", f"attn_{part}")] for part in "qkv"]
            writer.add_tensor(name.replace("attn_q", "attn_qkv"), np.concatenate(parts))
        elif ".attn_k." not in name and ".attn_v." not in name:
            writer.add_tensor(name, np.array(values))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return joined
