"""The configuration of Gemma 4, and how it is read."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from hearthd.models.config import MAX_LAYERS, ConfigError
from hearthd.models.decoder.config.decoder_config import (
    FULL,
    from_config_json,
    from_gguf_metadata,
    local_rope_base,
    not_every_nth,
    windows_by_type,
)
from hearthd.models.decoder.config.gemma_config import gemma_keys
from hearthd.models.decoder.config.rope_scaling import Rope
from hearthd.models.decoder.shared_cache import SharedCacheConfig

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.decoder_config import DecoderConfig
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata

# Names of the 12B, whose tokens have no embedding for each layer.
_UNIFIED = ("gemma4_unified", "gemma4_unified_text")
_PERIOD = 6  # every sixth layer attends to the whole context


@dataclass(frozen=True, kw_only=True)
class Gemma4Config(SharedCacheConfig):
    """The shape of a model; heads and rotary positions are for layers without a window.

    local_head_dim   the width of a head in layers with a window
    local_kv_heads   key/value heads of these layers; None: as many
    local_rope_base  base of their rotary positions
    layer_embedding  P, the width of the embedding of a token for each layer; None: it has none
    keys_are_values  whether the values of layers without a window are their keys, without the
                     norm's weights and rotation
    ffns             for each layer, the width between the matrices of its MLP
    logit_cap        a logit l becomes cap * tanh(l / cap)
    """

    by_layer = (*SharedCacheConfig.by_layer, "ffns")

    local_head_dim: int
    local_kv_heads: int | None = None
    local_rope_base: float
    layer_embedding: int | None
    keys_are_values: bool = False
    ffns: tuple[int, ...]
    logit_cap: float | None

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        if self.local_head_dim % 2:
            raise ConfigError(f"head_dim must be even, got {self.local_head_dim}")
        if self.local_kv_heads and self.heads % self.local_kv_heads:
            raise ConfigError(
                f"{self.heads} heads cannot share {self.local_kv_heads} key/value heads"
            )

    @property
    @override
    def local(self) -> DecoderConfig:
        """The shape of the layers with a window."""
        return replace(
            self,
            head_dim=self.local_head_dim,
            kv_heads=self.local_kv_heads or self.kv_heads,
            **Rope(base=self.local_rope_base).fields,
        )

    @override
    def layer(self, index: int) -> DecoderConfig:
        """The shape of a layer."""
        return replace(super().layer(index), ffn=self.ffns[index])

    def has_values(self, layer: int) -> bool:
        """Whether a layer has a projection to values."""
        return not self.keys_are_values or bool(self.windows and self.windows[layer])


def from_hugging_face(data: ConfigJson) -> Gemma4Config:
    """Read config.json."""
    data = data.text_section()
    data.fixed(enable_moe_block=False, num_experts=None, top_k_experts=None)
    data.fixed(moe_intermediate_size=None)
    return Gemma4Config(**fields_from_hugging_face(data))


def fields_from_hugging_face(data: ConfigJson) -> dict[str, Any]:
    """The fields of `Gemma4Config` from the text model's part of config.json.

    Raises ConfigError.
    """
    model_type = data.text("model_type", default="")
    gemma_keys(data, bidirectional="vision")  # tokens of images alone
    data.fixed(expert_intermediate_size=None, attention_bias=False)
    head_dim, local_head_dim = data.size("global_head_dim", default=512), data.size("head_dim")
    kv_heads = local_kv_heads = data.size("num_key_value_heads")
    equal = data.flag("attention_k_eq_v", default=False)
    data.fixed(**({} if equal else {"num_global_key_value_heads": None}))
    if equal:
        kv_heads = data.size("num_global_key_value_heads", default=kv_heads)
    if data.has("per_layer_config"):  # as transformers saves it
        head_dim = data.size_in_each("per_layer_config", "head_dim", default=local_head_dim)
        kv_heads = data.size_in_each("per_layer_config", "num_key_value_heads", default=kv_heads)
    fields = from_config_json(data, lambda data, _, most: data.rope(head_dim, most, FULL))
    layer_embedding = data.count(
        "hidden_size_per_layer_input", default=0 if model_type in _UNIFIED else 256
    )
    if layer_embedding:
        data.fixed(vocab_size_per_layer_input=fields["vocab_size"])
    else:
        data.ignore("vocab_size_per_layer_input")
    layers, ffn = fields["layers"], fields["ffn"]
    shared = data.count("num_kv_shared_layers", default=0)
    if shared > layers:
        raise ConfigError(f"num_kv_shared_layers: got {shared}, expected at most {layers}")
    shared_ffn = ffn * 2 if data.flag("use_double_wide_mlp", default=False) else ffn
    return {
        **fields,
        "head_dim": head_dim,
        "kv_heads": kv_heads,
        "windows": windows_by_type(data, not_every_nth(_PERIOD, layers)),
        "local_head_dim": local_head_dim,
        "local_kv_heads": None if local_kv_heads == kv_heads else local_kv_heads,
        "local_rope_base": local_rope_base(data, local_head_dim, fields["max_context"]),
        "layer_embedding": layer_embedding or None,
        "keys_are_values": equal,
        "caching_layers": layers - shared,
        "ffns": (ffn,) * (layers - shared) + (shared_ffn,) * shared,
        "logit_cap": data.number("final_logit_softcapping", default=None),
    }


def _heads_by_kind(heads: Sequence[int], windows: Sequence[int | None]) -> tuple[int, int]:
    """The key/value heads of layers with a window, and without one; raises ConfigError."""
    pairs = list(zip(heads, windows, strict=False))
    local = {count for count, window in pairs if window} or set(heads)
    others = {count for count, window in pairs if not window} or set(heads)
    if len(heads) != len(windows) or len(local) > 1 or len(others) > 1:
        raise ConfigError(
            f"attention.head_count_kv: got {list(heads)!r:.80}, expected one number for layers "
            "with a window and one for the others"
        )
    return local.pop(), others.pop()


def fields_from_gguf(data: GgufMetadata) -> dict[str, Any]:
    """The fields of `Gemma4Config` from GGUF metadata, and the table of rotary divisors.

    Raises ConfigError.
    """
    layers = data.size("block_count", limit=MAX_LAYERS)
    ffns = data.by_layer("feed_forward_length", layers)
    windows = data.windows_by_layer(layers)
    heads = data.by_layer("attention.head_count_kv", layers)
    local_kv_heads, kv_heads = _heads_by_kind(heads, windows)
    fields = from_gguf_metadata(data, rope_base=1_000_000.0, ffn=ffns[0], kv_heads=kv_heads)
    local_head_dim = data.size("attention.key_length_swa")
    data.fixed("attention.value_length_swa", local_head_dim)
    data.fixed("rope.dimension_count_swa", local_head_dim)
    return {
        **fields,
        "windows": windows,
        "local_head_dim": local_head_dim,
        "local_kv_heads": None if local_kv_heads == kv_heads else local_kv_heads,
        "local_rope_base": data.number("rope.freq_base_swa", default=10_000.0),
        "layer_embedding": data.count("embedding_length_per_layer_input", default=0) or None,
        "keys_are_values": None in windows
        and not data.has_tensor(f"blk.{windows.index(None)}.attn_v.weight"),
        "caching_layers": layers - data.count("attention.shared_kv_layers", default=0),
        "ffns": tuple(ffns),
        "logit_cap": data.number("final_logit_softcapping", default=None),
    }
