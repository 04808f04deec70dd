"""The keys of GGUF files of Gemma, and of windows, without the architecture."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

import gguf
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    Array = NDArray[Any]


def window_keys(config: Any) -> dict[str, Any]:
    """Which layers have a window."""
    if not config.windows:
        return {}
    return {
        "attention.sliding_window": next(window for window in config.windows if window),
        "attention.sliding_window_pattern": [window is not None for window in config.windows],
    }


def gemma2_keys(config: Any) -> dict[str, Any]:
    """Of Gemma 2."""
    return {
        "attention.sliding_window": next(window for window in config.windows if window),
        "attn_logit_softcapping": config.attention_cap,
        "final_logit_softcapping": config.logit_cap,
    }


def gemma3_keys(config: Any) -> dict[str, Any]:
    """Of Gemma 3."""
    return {
        "attention.sliding_window": next(window for window in config.windows if window),
        "attention.sliding_window_pattern": config.windows.index(None) + 1,
        "rope.freq_base_swa": config.local_rope_base,
    }


def gemma4_keys(config: Any) -> dict[str, Any]:
    """Of Gemma 4."""
    return {
        "attention.key_length_swa": config.local_head_dim,
        **window_keys(config),
        "attention.shared_kv_layers": config.layers - config.caching_layers,
        "attention.value_length_swa": config.local_head_dim,
        "embedding_length_per_layer_input": config.layer_embedding or 0,
        "rope.dimension_count": config.head_dim,
        "rope.dimension_count_swa": config.local_head_dim,
        "rope.freq_base_swa": config.local_rope_base,
        **({"final_logit_softcapping": config.logit_cap} if config.logit_cap else {}),
    }


def gemma3n_keys(config: Any) -> dict[str, Any]:
    """Of Gemma 3n."""
    deviations = (-math.inf if value is None else value for value in config.deviations)
    return {
        **window_keys(config),
        "activation_sparsity_scale": list(deviations),
        "altup.active_idx": 0,
        "altup.num_inputs": config.streams,
        "attention.shared_kv_layers": config.layers - config.caching_layers,
        "embedding_length_per_layer_input": config.layer_embedding,
        "final_logit_softcapping": config.logit_cap,
        "rope.freq_base_swa": config.local_rope_base,
    }


def gemma3n(tensors: Iterable[tuple[str, Array]]) -> Iterator[tuple[str, Array]]:
    """The tensors of Gemma 3n as convert_hf_to_gguf.py has them.

    The matrices of streams are one tensor.
    """
    stacks: dict[str, list[Array]] = {}
    for name, values in tensors:
        stack, replaced = re.subn(r"(altup\w*_projections)\.\d", r"\1", name)
        if replaced:
            stacks.setdefault(stack, []).append(values)
        else:
            yield (f"{name}.weight" if name.endswith("_scale") else name), values
    for stack, matrices in stacks.items():
        yield stack, np.stack(matrices)


def gemma_embedding_keys(config: Any) -> dict[str, Any]:
    """Of EmbeddingGemma."""
    half = next(window for window in config.windows if window) - 1
    widths = [config.hidden, *config.dense]
    return {
        **gemma3_keys(config),
        "attention.sliding_window": 2 * half,
        "pooling_type": int(gguf.PoolingType.MEAN),
        **{f"dense_{i}_feat_in": width for i, width in enumerate(widths[:-1], 2)},
        **{f"dense_{i}_feat_out": width for i, width in enumerate(widths[1:], 2)},
    }
