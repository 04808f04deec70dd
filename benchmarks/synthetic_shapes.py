"""The shapes of published models, and the tensors of their GGUF files."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type

from hearthd.models.catalog import ARCHITECTURES, ASSISTANTS
from hearthd.models.decoder.config.decoder_config import (
    DecoderConfig,
    every_nth_layer_sees_all,
    not_every_nth,
)
from hearthd.models.decoder.config.gguf_metadata import ROPE_DIVISORS
from hearthd.models.decoder.drafting.mtp import MtpConfig
from hearthd.models.decoder.experts import ExpertsConfig, after_dense_layers
from hearthd.models.decoder.gemma4_config import Gemma4Config
from hearthd.models.decoder.recurrent.mamba2 import Mamba2Config
from hearthd.models.decoder.tensor_names import EMBEDDING, HEAD
from hearthd.models.dsl.functions.routing import CHOSEN, SIGMOID
from hearthd.models.families import (
    gemma3,
    gemma4_assistant,
    gemma4moe,
    gpt_oss,
    granitehybrid,
    lfm2moe,
    llama,
    nemotron_h,
    qwen3moe,
    qwen35,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from hearthd.models.decoder.architecture import Architecture

# Source: https://huggingface.co/nvidia/NVIDIA-Nemotron-3-Nano-4B-BF16, config.json.
_NANO = "M-M-M-MM-M-M*-M-M*-M-M-M*-M-M-MM*-MMM-M-M-"
_NANO_KINDS = {"M": nemotron_h.MAMBA, "*": nemotron_h.ATTENTION, "-": nemotron_h.MLP}

# Divides the frequencies of columns that do not turn, as llama.cpp's converter writes it.
_NOT_TURNED = float(np.float32(1e30))

_LFM2_ATTENDS = tuple(layer in (2, 6, 10, 14, 18, 21) for layer in range(24))


def _qwen35(layers: int, hidden: int, ffn: int, heads: int, kv_heads: int) -> qwen35.Config:
    """Source: config.json of Qwen/Qwen3.5-0.8B, -2B and -4B."""
    return qwen35.Config(
        layers=layers, hidden=hidden, ffn=ffn, heads=heads, kv_heads=kv_heads, head_dim=256,
        max_context=262144, vocab_size=248320, norm_eps=1e-6, rope_base=1e7, rotary_width=64,
        attends=tuple(not linear for linear in not_every_nth(4, layers)), key_heads=16,
        value_heads=2 * heads, key_width=128, value_width=128, taps=4, takes_turns=heads != 8,
        tied=True,
    )  # fmt: skip


# Source: config.json of google/gemma-3-270m-it, -1b-it, -4b-it, -12b-it and -27b-it, of
# google/gemma-4-26B-A4B and -26B-A4B-it-assistant, of Qwen/Qwen3-30B-A3B, of openai/gpt-oss-20b
# (without YaRN), of LiquidAI/LFM2-8B-A1B, of meta-llama/Llama-3.2-1B-Instruct and of
# ibm-granite/granite-4.0-h-1b.
SIZES: Mapping[str, DecoderConfig] = {
    "270m": gemma3.Config(
        layers=18, hidden=640, ffn=2048, heads=4, kv_heads=1, head_dim=256,
        max_context=32768, vocab_size=262144, query_scale=256**-0.5,
        windows=every_nth_layer_sees_all(6, 18, 512),
    ),
    "1b": gemma3.Config(
        layers=26, hidden=1152, ffn=6912, heads=4, kv_heads=1, head_dim=256,
        max_context=32768, vocab_size=262144, query_scale=256**-0.5,
        windows=every_nth_layer_sees_all(6, 26, 512),
    ),
    "4b": gemma3.Config(
        layers=34, hidden=2560, ffn=10240, heads=8, kv_heads=4, head_dim=256,
        max_context=131072, vocab_size=262208, query_scale=256**-0.5, rope_factor=8.0,
        windows=every_nth_layer_sees_all(6, 34, 1024),
    ),
    "12b": gemma3.Config(
        layers=48, hidden=3840, ffn=15360, heads=16, kv_heads=8, head_dim=256,
        max_context=131072, vocab_size=262208, query_scale=256**-0.5, rope_factor=8.0,
        windows=every_nth_layer_sees_all(6, 48, 1024),
    ),
    "27b": gemma3.Config(
        layers=62, hidden=5376, ffn=21504, heads=32, kv_heads=16, head_dim=128,
        max_context=131072, vocab_size=262208, query_scale=168**-0.5, rope_factor=8.0,
        windows=every_nth_layer_sees_all(6, 62, 1024),
    ),
    "gemma4-26b-a4b": gemma4moe.Config(
        layers=30, hidden=2816, ffn=2112, heads=16, kv_heads=2, head_dim=512,
        max_context=262144, vocab_size=262144, norm_eps=1e-6, rope_base=1e6, tied=True,
        rope_divisors=(1.0,) * 64 + (_NOT_TURNED,) * 192,
        windows=every_nth_layer_sees_all(6, 30, 1024), local_head_dim=256, local_kv_heads=8,
        local_rope_base=1e4, layer_embedding=None, keys_are_values=True, caching_layers=30,
        ffns=(2112,) * 30, logit_cap=30.0,
        experts=128, experts_per_token=8, expert_ffn=704, routed=(True,) * 30, normalized=True,
    ),
    "gemma4-26b-a4b-assistant": gemma4_assistant.Config(
        layers=4, hidden=1024, ffn=8192, heads=16, kv_heads=2, head_dim=512,
        max_context=262144, vocab_size=262144, norm_eps=1e-6, rope_base=1e6, tied=True,
        rope_divisors=(1.0,) * 64 + (_NOT_TURNED,) * 192,
        windows=every_nth_layer_sees_all(4, 4, 1024), local_head_dim=256, local_kv_heads=8,
        local_rope_base=1e4, layer_embedding=None, caching_layers=4, ffns=(8192,) * 4,
        logit_cap=None, backbone=2816,
    ),
    "qwen3-30b-a3b": ExpertsConfig(
        layers=48, hidden=2048, ffn=6144, heads=32, kv_heads=4, head_dim=128,
        max_context=40960, vocab_size=151936, norm_eps=1e-6, rope_base=1e6, tied=False,
        experts=128, experts_per_token=8, expert_ffn=768, routed=(True,) * 48, normalized=True,
    ),
    "gpt-oss-20b": gpt_oss.Config(
        layers=24, hidden=2880, ffn=2880, heads=64, kv_heads=8, head_dim=64,
        max_context=131072, vocab_size=201088, norm_eps=1e-5, rope_base=150000.0, tied=False,
        attention_bias=True, output_bias=True, windows=(128, None) * 12,
        experts=32, experts_per_token=4, expert_ffn=2880, routed=(True,) * 24, scores=CHOSEN,
        normalized=True, expert_bias=True,
    ),
    "lfm2-8b-a1b": lfm2moe.Config(
        layers=24, hidden=2048, ffn=7168, heads=32, kv_heads=8, head_dim=64, max_context=128000,
        vocab_size=65536, norm_eps=1e-5, rope_base=1e6, tied=True, taps=3,
        attends=_LFM2_ATTENDS, windows=tuple(None if attends else 3 for attends in _LFM2_ATTENDS),
        experts=32, experts_per_token=4, expert_ffn=1792, routed=after_dense_layers(2, 24),
        scores=SIGMOID, choice_bias=True, normalized=True, sum_offset=lfm2moe.SUM_OFFSET,
    ),
    "qwen3.5-0.8b": _qwen35(24, 1024, 3584, 8, 2),
    "qwen3.5-0.8b-mtp": replace(_qwen35(24, 1024, 3584, 8, 2), mtp=True),
    "qwen3.5-2b": _qwen35(24, 2048, 6144, 8, 2),
    "qwen3.5-4b": _qwen35(32, 2560, 9216, 16, 4),
    "qwen3.5-4b-mtp": replace(_qwen35(32, 2560, 9216, 16, 4), mtp=True),
    "llama-3.2-1b": DecoderConfig(
        layers=16, hidden=2048, ffn=8192, heads=32, kv_heads=8, head_dim=64, max_context=131072,
        vocab_size=128256, norm_eps=1e-5, rope_base=5e5, tied=True,
    ),
    "granite-4-h-1b": granitehybrid.Config(
        layers=40, hidden=1536, ffn=4096, heads=12, kv_heads=4, head_dim=128, max_context=131072,
        vocab_size=100352, norm_eps=1e-5, rope_base=1e4, tied=True, embedding_scale=12.0,
        attention_scale=128**-1, residual_scale=0.22, logit_scale=6.0,
        attends=tuple(layer in (5, 15, 25, 35) for layer in range(40)),
        ssm_heads=48, ssm_width=64, ssm_groups=1, ssm_state=128, taps=4,
    ),
    "nemotron-3-nano-4b": nemotron_h.Config(
        layers=42, hidden=3136, ffn=12544, heads=40, kv_heads=8, head_dim=128, max_context=262144,
        vocab_size=131072, norm_eps=1e-5, rope_base=1e4, tied=False,
        kinds=tuple(_NANO_KINDS[kind] for kind in _NANO),
        ssm_heads=96, ssm_width=80, ssm_groups=8, ssm_state=128, taps=4,
    ),
}  # fmt: skip
# Of the architectures that share a class of configurations, the one that SIZES has.
_SHARED: Mapping[type, Architecture[Any]] = {
    DecoderConfig: llama.ARCHITECTURE,
    ExpertsConfig: qwen3moe.ARCHITECTURE,
    nemotron_h.Config: nemotron_h.ARCHITECTURE,
}
TABLE_NAME, _FINAL_NORM = "token_embd.weight", "norm.weight"


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


def architecture_of(config: DecoderConfig) -> Architecture[Any]:
    """The architecture of a shape."""
    if shared := _SHARED.get(type(config)):
        return shared
    architectures = (*ARCHITECTURES.values(), *ASSISTANTS.values())
    return next(each for each in architectures if each.config is type(config))


def final_norm_name(config: DecoderConfig) -> str:
    """The tensor of the final norm: LFM2 calls it one of the embeddings."""
    return architecture_of(config).tensors.find(config, _FINAL_NORM, (), gguf=True).name


def tensors_of(config: DecoderConfig) -> Iterator[TensorInfo]:
    """The tensors of a file: its tables, then the weights in the order of the parameters."""
    for name, values in tables_of(config).items():
        yield TensorInfo(name, (len(values),), Type.F32)
    architecture = architecture_of(config)
    table = Type.Q8_0 if config.hidden % gguf.QK_K else Type.Q6_K
    for parameter, tensor in architecture.model(config).parameters().items():
        name = architecture.tensors.find(config, parameter, (), gguf=True).name
        is_f32 = len(tensor.shape) == 1 or name.endswith(F32_MATRICES)
        is_table = parameter in (EMBEDDING, HEAD)
        type_ = Type.F32 if is_f32 else table if is_table else _matrix_type(config, name)
        yield TensorInfo(name, _shape_in_file(name, tensor.shape, config), type_)


def tables_of(config: DecoderConfig) -> Mapping[str, tuple[float, ...]]:
    """The tensors whose values follow from the configuration."""
    return {ROPE_DIVISORS: config.rope_divisors} if config.rope_divisors else {}


def _matrix_type(config: DecoderConfig, name: str) -> Type:
    """The type of a matrix of a layer: files of gpt-oss keep the MXFP4 of its experts."""
    if isinstance(config, gpt_oss.Config):
        return Type.MXFP4 if name.endswith(_EXPERT_MATRICES) else Type.Q8_0
    return Type.Q4_0


_EXPERT_MATRICES = "_exps.weight"
ROUTER = "ffn_gate_inp.weight"
F32_MATRICES = (ROUTER, "ssm_conv1d.weight", "shortconv.conv.weight", "_exps.bias")
DECAYS = "ssm_a"  # numbers below 0


def _shape_in_file(name: str, shape: tuple[int, ...], config: DecoderConfig) -> tuple[int, ...]:
    """The shape of a parameter in a file, where experts have matrices, and Mamba-2 columns."""
    if isinstance(config, ExpertsConfig) and name.endswith(_EXPERT_MATRICES):
        return config.experts, shape[0] // config.experts, shape[1]
    if isinstance(config, Mamba2Config) and name.endswith((DECAYS, "ssm_d")):
        return (*shape, 1)
    if isinstance(config, Mamba2Config) and name.endswith("ssm_norm.weight"):
        return config.ssm_groups, shape[0] // config.ssm_groups
    return shape


def window_of(config: DecoderConfig) -> int | None:
    """The window of attention that a file states, if it does: rings of LFM2's states have none."""
    if isinstance(config, lfm2moe.Config):
        return None
    return next((window for window in config.windows if window is not None), None)


def keys_of(config: DecoderConfig) -> dict[str, object]:
    """The GGUF keys that only a model of this kind has, without the name of its architecture."""
    keys = _expert_keys(config) if isinstance(config, ExpertsConfig) else {}
    if isinstance(config, Mamba2Config):
        keys |= {
            "ssm.conv_kernel": config.taps,
            "ssm.state_size": config.ssm_state,
            "ssm.group_count": config.ssm_groups,
            "ssm.inner_size": config.ssm_inner,
            "ssm.time_step_rank": config.ssm_heads,
        }
    if isinstance(config, granitehybrid.Config):
        keys |= {
            "rope.scaling.finetuned": False,
            "embedding_scale": config.embedding_scale,
            "attention.scale": config.attention_scale,
            "residual_scale": config.residual_scale,
            "logit_scale": config.logit_scale,
            "attention.head_count_kv": [config.kv_heads * attends for attends in config.attends],
        }
    if isinstance(config, nemotron_h.Config):
        keys["attention.layer_norm_epsilon"] = config.norm_eps
        by_layer = {
            "attention.head_count_kv": (nemotron_h.ATTENTION, config.kv_heads),
            "feed_forward_length": (nemotron_h.MLP, config.ffn),
        }
        for key, (kind, size) in by_layer.items():
            keys[key] = [size * (layer == kind) for layer in config.kinds]
    if isinstance(config, Gemma4Config):
        keys |= _gemma4_keys(config)
    if isinstance(config, MtpConfig) and config.mtp:
        keys["nextn_predict_layers"] = 1
    if isinstance(config, qwen35.Config):
        keys |= {
            "full_attention_interval": config.attends.index(True) + 1,
            "rope.dimension_count": config.rotary_width,
            "rope.dimension_sections": [*getattr(config, "rope_sections", (11, 11, 10)), 0],
            "ssm.conv_kernel": config.taps,
            "ssm.state_size": config.key_width,
            "ssm.inner_size": config.value_heads * config.value_width,
            "ssm.time_step_rank": config.value_heads,
            "ssm.group_count": config.key_heads,
        }
    return keys


def _gemma4_keys(config: Gemma4Config) -> dict[str, object]:
    """The keys of Gemma 4 and its assistants."""
    keys: dict[str, object] = {
        "feed_forward_length": list(config.ffns),
        "attention.head_count_kv": [config.layer(i).kv_heads for i in range(config.layers)],
        "attention.key_length_swa": config.local_head_dim,
        "attention.value_length_swa": config.local_head_dim,
        "attention.sliding_window_pattern": [window is not None for window in config.windows],
        "attention.shared_kv_layers": config.layers - config.caching_layers,
        "embedding_length_per_layer_input": 0,
        "rope.dimension_count": config.head_dim,
        "rope.dimension_count_swa": config.local_head_dim,
        "rope.freq_base_swa": config.local_rope_base,
    }
    if config.logit_cap is not None:
        keys["final_logit_softcapping"] = config.logit_cap
    if isinstance(config, gemma4_assistant.Config):
        keys |= {
            "attention.shared_kv_layers": config.layers,
            "embedding_length_out": config.backbone,
            "nextn_predict_layers": config.layers,
        }
    return keys


def _expert_keys(config: ExpertsConfig) -> dict[str, object]:
    """The keys of a model with experts."""
    keys: dict[str, object] = {
        "expert_count": config.experts,
        "expert_used_count": config.experts_per_token,
        "expert_feed_forward_length": config.expert_ffn,
    }
    if isinstance(config, lfm2moe.Config):
        keys |= {
            "attention.head_count_kv": [config.kv_heads * attends for attends in config.attends],
            "expert_gating_func": 2,  # sigmoid
            "leading_dense_block_count": config.routed.index(True),
            "shortconv.l_cache": config.taps,
        }
    return keys
