"""Tensors of folders of models that transformers computes as Llama, made of Llama's tensors."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    Tensors = Mapping[str, NDArray[np.float32]]

_HEADS = re.compile(r"self_attn\.([qkv])_proj")
_OF_INTERNLM2 = {
    "self_attn.o_proj": "attention.wo",
    "mlp.gate_proj": "feed_forward.w1",
    "mlp.down_proj": "feed_forward.w2",
    "mlp.up_proj": "feed_forward.w3",
    "input_layernorm": "attention_norm",
    "post_attention_layernorm": "ffn_norm",
    "embed_tokens": "tok_embeddings",
    "lm_head": "output",
}

_OF_QWEN = {
    "model.layers": "transformer.h",
    "self_attn.o_proj": "attn.c_proj",
    "mlp.gate_proj": "mlp.w2",
    "mlp.down_proj": "mlp.c_proj",
    "mlp.up_proj": "mlp.w1",
    "input_layernorm": "ln_1",
    "post_attention_layernorm": "ln_2",
    "model.embed_tokens": "transformer.wte",
    "model.norm": "transformer.ln_f",
}


def _internlm2(tensors: Tensors, config: Mapping[str, Any]) -> Tensors:
    """Each key/value head follows its queries."""
    groups = config["num_key_value_heads"]
    packed = _packed(
        tensors,
        "attention.wqkv",
        lambda parts: np.concatenate(
            [part.reshape(groups, -1, part.shape[1]) for part in parts], axis=1
        ).reshape(-1, parts[0].shape[1]),
    )
    renamed = {}
    for name, values in packed.items():
        for old, new in _OF_INTERNLM2.items():
            name = name.replace(old, new)
        renamed[name] = values
    return renamed


def _baichuan(tensors: Tensors, _: Mapping[str, Any]) -> Tensors:
    """Queries, keys and values follow each other."""
    return _packed(tensors, "self_attn.W_pack", np.concatenate)


def _qwen(tensors: Tensors, _: Mapping[str, Any]) -> Tensors:
    """Queries, keys and values follow each other, under GPT-2's names."""
    renamed = {}
    for name, values in _packed(tensors, "attn.c_attn", np.concatenate).items():
        for old, new in _OF_QWEN.items():
            name = name.replace(old, new)
        renamed[name] = values
    return renamed


def _kimi_linear(tensors: Tensors, config: Mapping[str, Any]) -> Tensors:
    """The first layer has an MLP, which transformers names as experts when it saves."""
    if "linear_attn_config" not in config:
        return tensors
    dense = re.compile(r"block_sparse_moe\.(gate|up|down)_proj")
    return {dense.sub(r"mlp.\1_proj", name): values for name, values in tensors.items()}


def _packed(
    tensors: Tensors,
    name: str,
    pack: Callable[[list[NDArray[np.float32]]], NDArray[np.float32]],
) -> dict[str, NDArray[np.float32]]:
    """The tensors, with queries, keys and values of each layer in one of this name."""
    packed = {}
    for own, values in tensors.items():
        part = _HEADS.search(own)
        if part is None:
            packed[own] = values
        elif part[1] == "q":
            parts = [tensors[own.replace("q_proj", f"{each}_proj")] for each in "qkv"]
            packed[_HEADS.sub(name, own)] = pack(parts)
    return packed


_PACKED = {
    "baichuan": _baichuan,
    "internlm2": _internlm2,
    "kimi_linear": _kimi_linear,
    "qwen": _qwen,
}


def packed_tensors(tensors: Tensors, config: Mapping[str, Any]) -> Tensors:
    """The tensors of a folder with a config.json, from what transformers computes with."""
    pack = _PACKED.get(config["model_type"])
    return tensors if pack is None else pack(tensors, config)
