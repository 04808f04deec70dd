"""The tensor of queries, keys and values of a GGUF file, as llama.cpp's converter writes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gguf
import numpy as np

from tests.models.families.split_gguf import copy_keys

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from hearthd.models.decoder.config.decoder_config import DecoderConfig

# Architectures whose folders have the queries, the key and the value of a group side by side.
HEADS_IN_GROUPS = ("falcon", "gptneox")


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
