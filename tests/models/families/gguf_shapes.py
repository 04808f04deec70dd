"""The keys of GGUF files for heads, MLPs and experts, which some architectures state by layer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hearthd.models.decoder.experts import ExpertsConfig
from hearthd.models.decoder.gemma4_config import Gemma4Config
from hearthd.models.decoder.latent_attention import LatentConfig
from hearthd.models.families.deci import Config as DeciConfig
from hearthd.models.families.granitehybrid import Config as GraniteHybridConfig
from hearthd.models.families.jamba import Config as JambaConfig
from hearthd.models.families.kimi_linear import Config as KimiConfig
from hearthd.models.families.lfm2 import Config as Lfm2Config
from hearthd.models.families.mimo2 import Config as MimoConfig
from hearthd.models.families.nemotron_h import Config as NemotronConfig
from hearthd.models.families.openelm import Config as OpenElmConfig
from tests.models.families.gguf_keys import (
    COUNTS_SHARED_EXPERTS,
    EXPERTS_OF_MLP_WIDTH,
    KEEPS_JOINED,
    WITHOUT_ATTENTION,
)

if TYPE_CHECKING:
    from hearthd.models.decoder.config.decoder_config import DecoderConfig


def add_shape(writer: Any, architecture: str, config: DecoderConfig) -> None:
    """Write the keys."""
    if isinstance(config, ExpertsConfig):
        _add_experts(writer, architecture, config)
    if architecture in WITHOUT_ATTENTION:
        writer.add_feed_forward_length(config.ffn if architecture == "rwkv7" else 0)
        writer.add_head_count(0)
        return
    writer.add_feed_forward_length(_ffns(architecture, config))
    heads = [config.layer(index).heads for index in range(config.layers)]
    if isinstance(config, DeciConfig):
        present = zip(config.key_heads, config.linear, strict=True)
        heads = [config.heads * bool(keys or is_linear) for keys, is_linear in present]
    writer.add_head_count(heads if len({*heads}) > 1 else config.heads)
    _add_heads(writer, architecture, config)
    writer.add_rope_freq_base(config.rope_base)


def _ffns(architecture: str, config: DecoderConfig) -> int | list[int]:
    """The widths of MLPs."""
    if isinstance(config, Gemma4Config | OpenElmConfig):
        return list(config.ffns)
    if isinstance(config, DeciConfig):
        return [ffn or 0 for ffn in config.ffns]
    if isinstance(config, NemotronConfig):
        widths = {"mlp": config.ffn, "moe": getattr(config, "expert_ffn", 0)}
        return [widths.get(kind, 0) for kind in config.kinds]
    return 2 * config.ffn if architecture == "qwen" else config.ffn


def _add_experts(writer: Any, architecture: str, config: ExpertsConfig) -> None:
    writer.add_expert_count(config.experts)
    writer.add_expert_used_count(config.experts_per_token)
    if architecture == "jamba":
        return
    writer.add_leading_dense_block_count(config.routed.index(True))
    if architecture not in EXPERTS_OF_MLP_WIDTH:
        writer.add_expert_feed_forward_length(config.expert_ffn)
    if config.shared_ffn is not None and architecture not in COUNTS_SHARED_EXPERTS:
        writer.add_expert_shared_feed_forward_length(config.shared_ffn)


def _add_heads(writer: Any, architecture: str, config: DecoderConfig) -> None:
    kv_heads: int | list[int] = config.kv_heads
    key_width = value_width = config.head_dim
    if isinstance(config, Lfm2Config | GraniteHybridConfig | JambaConfig):
        kv_heads = [config.kv_heads * attends for attends in config.attends]
    elif isinstance(config, DeciConfig):
        kv_heads = [keys or 0 for keys in config.key_heads]
    elif isinstance(config, NemotronConfig):
        kv_heads = [config.kv_heads * (kind == "attention") for kind in config.kinds]
    elif isinstance(config, MimoConfig):
        kv_heads = [config.layer(index).kv_heads for index in range(config.layers)]
        value_width = config.value_width
    elif isinstance(config, Gemma4Config | OpenElmConfig):
        kv_heads = [config.layer(index).kv_heads for index in range(config.layers)]
    elif isinstance(config, KimiConfig):
        kv_heads = [int(attends) for attends in config.attends]
        value_width = config.latent
    elif isinstance(config, LatentConfig) and architecture not in KEEPS_JOINED:
        value_width = config.latent
    elif isinstance(config, LatentConfig):
        kv_heads = config.heads
        key_width = value_width = config.key_width + config.rotary_width
        value_width = config.value_width if architecture == "plm" else value_width
    writer.add_head_count_kv(kv_heads)
    writer.add_key_length(key_width)
    writer.add_value_length(value_width)
