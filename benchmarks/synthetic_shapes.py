"""The shapes of published models, and the tensors of their GGUF files."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import gguf
from gguf import GGMLQuantizationType as Type

from hearthd.models.decoder.config.decoder_config import every_nth_layer_sees_all
from hearthd.models.decoder.experts import ExpertsConfig
from hearthd.models.families.gemma3 import Config

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from hearthd.models.decoder.config.decoder_config import DecoderConfig

# Source: config.json of google/gemma-3-270m-it, -1b-it, -4b-it, -12b-it and -27b-it, and of
# Qwen/Qwen3-30B-A3B.
SIZES: Mapping[str, DecoderConfig] = {
    "270m": Config(
        layers=18, hidden=640, ffn=2048, heads=4, kv_heads=1, head_dim=256,
        max_context=32768, vocab_size=262144, query_scale=256**-0.5,
        windows=every_nth_layer_sees_all(6, 18, 512),
    ),
    "1b": Config(
        layers=26, hidden=1152, ffn=6912, heads=4, kv_heads=1, head_dim=256,
        max_context=32768, vocab_size=262144, query_scale=256**-0.5,
        windows=every_nth_layer_sees_all(6, 26, 512),
    ),
    "4b": Config(
        layers=34, hidden=2560, ffn=10240, heads=8, kv_heads=4, head_dim=256,
        max_context=131072, vocab_size=262208, query_scale=256**-0.5, rope_factor=8.0,
        windows=every_nth_layer_sees_all(6, 34, 1024),
    ),
    "12b": Config(
        layers=48, hidden=3840, ffn=15360, heads=16, kv_heads=8, head_dim=256,
        max_context=131072, vocab_size=262208, query_scale=256**-0.5, rope_factor=8.0,
        windows=every_nth_layer_sees_all(6, 48, 1024),
    ),
    "27b": Config(
        layers=62, hidden=5376, ffn=21504, heads=32, kv_heads=16, head_dim=128,
        max_context=131072, vocab_size=262208, query_scale=168**-0.5, rope_factor=8.0,
        windows=every_nth_layer_sees_all(6, 62, 1024),
    ),
    "qwen3-30b-a3b": ExpertsConfig(
        layers=48, hidden=2048, ffn=6144, heads=32, kv_heads=4, head_dim=128,
        max_context=40960, vocab_size=151936, norm_eps=1e-6, rope_base=1e6, tied=False,
        experts=128, experts_per_token=8, expert_ffn=768, routed=(True,) * 48, normalized=True,
    ),
}  # fmt: skip
FINAL_NORM_NAME = "output_norm.weight"


@dataclass(frozen=True)
class TensorInfo:
    """A tensor of the file: `shape` is row-major."""

    name: str
    shape: tuple[int, ...]
    type: Type

    @property
    def stored_bytes(self) -> int:
        """Bytes without the padding."""
        block, block_bytes = gguf.GGML_QUANT_SIZES[self.type]
        return math.prod(self.shape) // block * block_bytes


def architecture_of(config: DecoderConfig) -> str:
    """The architecture of a shape, as GGUF files name it."""
    return "qwen3moe" if isinstance(config, ExpertsConfig) else "gemma3"


def tensors_of(config: DecoderConfig) -> Iterator[TensorInfo]:
    """The tensors of a model, in the order of the file."""
    hidden = config.hidden
    table = Type.Q8_0 if hidden % gguf.QK_K else Type.Q6_K
    yield TensorInfo("token_embd.weight", (config.vocab_size, hidden), table)
    yield TensorInfo(FINAL_NORM_NAME, (hidden,), Type.F32)
    if not config.tied:
        yield TensorInfo("output.weight", (config.vocab_size, hidden), table)
    shapes = _attention(config) | _mlp(config)
    for layer in range(config.layers):
        for name, shape in shapes.items():
            is_f32 = len(shape) == 1 or name == _ROUTER
            type_ = Type.F32 if is_f32 else Type.Q4_0
            yield TensorInfo(f"blk.{layer}.{name}.weight", shape, type_)


_ROUTER = "ffn_gate_inp"


def _attention(config: DecoderConfig) -> dict[str, tuple[int, ...]]:
    hidden = config.hidden
    queries, keys = config.heads * config.head_dim, config.kv_heads * config.head_dim
    return {
        "attn_norm": (hidden,),
        "attn_q": (queries, hidden),
        "attn_k": (keys, hidden),
        "attn_v": (keys, hidden),
        "attn_q_norm": (config.head_dim,),
        "attn_k_norm": (config.head_dim,),
        "attn_output": (hidden, queries),
    }


def _mlp(config: DecoderConfig) -> dict[str, tuple[int, ...]]:
    hidden, ffn = config.hidden, config.ffn
    if isinstance(config, ExpertsConfig):
        experts, width = config.experts, config.expert_ffn
        return {
            "ffn_norm": (hidden,),
            _ROUTER: (experts, hidden),
            "ffn_gate_exps": (experts, width, hidden),
            "ffn_up_exps": (experts, width, hidden),
            "ffn_down_exps": (experts, hidden, width),
        }
    return {
        "post_attention_norm": (hidden,),
        "ffn_norm": (hidden,),
        "ffn_gate": (ffn, hidden),
        "ffn_up": (ffn, hidden),
        "ffn_down": (hidden, ffn),
        "post_ffw_norm": (hidden,),
    }
