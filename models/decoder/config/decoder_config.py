"""The configuration that models of the Llama type share."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from typing_extensions import override

from hearthd.models.config import MAX_LAYERS, ConfigError, ModelConfig
from hearthd.models.decoder.config.config_json import POOLING, ConfigJson
from hearthd.models.decoder.config.rope_scaling import Rope

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata

SLIDING, FULL = "sliding_attention", "full_attention"  # values in `layer_types`


@dataclass(frozen=True, kw_only=True)
class DecoderConfig(ModelConfig):
    """The shape of a decoder with rotary positions.

    rope_factor     divides the rotary frequencies (linear scaling)
    rope_divisors   divides each of the D / 2 frequencies by its own number; empty: by none
    rope_magnitude  multiplies cosines and sines
    tied            whether the embedding table is also the output head
    attention_bias  whether the projections to queries, keys and values add a bias
    output_bias     whether the projection of attention's result does
    mlp_bias        whether the projections of the MLP do
    windows         for each layer, the keys that a token sees, itself included; None: all of them.
                    Empty: all of them in every layer

    The fields in `by_layer` have a value for each layer.
    """

    by_layer: ClassVar[tuple[str, ...]] = ("windows",)

    rope_base: float
    rope_factor: float = 1.0
    rope_divisors: tuple[float, ...] = ()
    rope_magnitude: float = 1.0
    tied: bool
    attention_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    windows: tuple[int | None, ...] = ()

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        defaults = {field.name: field.default for field in dataclasses.fields(self)}
        for name in self.by_layer:
            values: tuple[Any, ...] = getattr(self, name)
            if values != defaults[name] and len(values) != self.layers:
                raise ConfigError(
                    f"{name}: got {len(values)} values, expected {self.layers}, by layer"
                )
        if self.rope_divisors and len(self.rope_divisors) > self.head_dim // 2:
            raise ConfigError(
                f"rope_divisors: got {len(self.rope_divisors)}, expected {self.head_dim // 2}"
            )

    @property
    def local(self) -> DecoderConfig:
        """The shape of the layers with a window."""
        return self

    def rotates(self, _: int) -> bool:
        """Whether a layer has rotary positions."""
        return True

    def layer(self, index: int) -> DecoderConfig:
        """The shape of a layer."""
        return self.local if self.windows and self.windows[index] is not None else self


def from_config_json(
    data: ConfigJson,
    read_rope: Callable[[ConfigJson, int, int], Rope] = ConfigJson.rope,
    *,
    activation: str = "silu",
    ffn: int | None = None,
) -> dict[str, Any]:
    """The fields of `DecoderConfig` but `windows`; raises ConfigError.

    read_rope   (data, width, max_context) -> the rotary positions
    activation  the only supported one, under the key `hidden_act`
    ffn         the width between the matrices of an MLP, where the file says it by layer
    """
    data.fixed(hidden_act=activation, rope_interleaved=False)
    heads, hidden = data.size("num_attention_heads"), data.size("hidden_size")
    head_dim = data.size("head_dim", default=max(1, hidden // heads))
    max_context = data.size("max_position_embeddings")
    bias = data.flag("attention_bias", default=False)
    return {
        "layers": data.size("num_hidden_layers", limit=MAX_LAYERS),
        "hidden": hidden,
        "ffn": ffn or data.size("intermediate_size"),
        "heads": heads,
        "kv_heads": data.size("num_key_value_heads", default=heads),
        "head_dim": head_dim,
        "max_context": max_context,
        "vocab_size": data.size("vocab_size"),
        "norm_eps": data.number("rms_norm_eps"),
        "tied": data.flag("tie_word_embeddings", default=False),
        "attention_bias": bias,
        "output_bias": bias,
        "mlp_bias": data.flag("mlp_bias", default=False),
        "pooling": data.text(POOLING, default="mean"),
        **read_rope(data, head_dim, max_context).fields,
    }


def from_gguf_metadata(
    data: GgufMetadata,
    *,
    rope_base: float = 10_000.0,
    rope_width: int | None = None,
    heads: int | None = None,
    kv_heads: int | None = None,
    ffn: int | None = None,
    value_width: int | None = None,
    truncate_yarn: bool = True,
) -> dict[str, Any]:
    """The fields of `DecoderConfig` but `windows`; raises ConfigError.

    rope_base   what a missing key means
    rope_width  columns of a head that turn, None for all
    heads, kv_heads  query and key/value heads, where the metadata say them by layer
    ffn         the width between the matrices of an MLP, where the metadata say it by layer
    value_width the only supported width of a head of values; None: the width of keys
    truncate_yarn  see `yarn_divisors`
    """
    heads, hidden = heads or data.size("attention.head_count"), data.size("embedding_length")
    head_dim = data.size("attention.key_length", default=max(1, hidden // heads))
    max_context = data.size("context_length")
    data.fixed("attention.value_length", value_width or head_dim)
    data.size("vocab_size", default=1)  # the table has as many rows, or some more
    return {
        "layers": data.size("block_count", limit=MAX_LAYERS),
        "hidden": hidden,
        "ffn": ffn or data.size("feed_forward_length"),
        "heads": heads,
        "kv_heads": kv_heads or data.size("attention.head_count_kv", default=heads),
        "head_dim": head_dim,
        "max_context": max_context,
        "vocab_size": data.vocabulary_rows,
        "norm_eps": data.epsilon("layer_norm_rms"),
        "tied": not data.has_tensor("output.weight"),
        "attention_bias": any(data.has_tensor(f"blk.0.attn_{part}.bias") for part in ("q", "qkv")),
        "output_bias": data.has_tensor("blk.0.attn_output.bias"),
        "mlp_bias": data.has_tensor("blk.0.ffn_up.bias"),
        "pooling": data.pooling(),
        **data.rope(
            rope_width or head_dim, max_context, rope_base, truncate_yarn=truncate_yarn
        ).fields,
    }


def not_every_nth(period: int, layers: int) -> list[bool]:
    """For each layer, whether it is another than the last one of each `period`."""
    return [(layer + 1) % period != 0 for layer in range(layers)]


def every_nth_layer_sees_all(period: int, layers: int, window: int) -> tuple[int | None, ...]:
    """`windows` of layers; the last layer of each `period` has none."""
    return tuple(window if slides else None for slides in not_every_nth(period, layers))


def windows_by_type(data: ConfigJson, usual: Sequence[bool]) -> tuple[int | None, ...]:
    """`windows` from `layer_types` and `sliding_window`; raises ConfigError.

    usual  for each layer, whether it slides where the file has no `layer_types`
    """
    layer_types = data.texts(
        "layer_types", default=[SLIDING if slides else FULL for slides in usual]
    )
    window = data.size("sliding_window", default=None)
    for layer_type in layer_types:
        if layer_type not in (SLIDING, FULL):
            raise ConfigError(
                f"config.json: layer_types: got {layer_type!r:.80}, supported: {FULL}, {SLIDING}"
            )
    if SLIDING not in layer_types:
        return ()
    if window is None:
        raise ConfigError("config.json: sliding_window is missing")
    if len(layer_types) != len(usual):
        raise ConfigError(
            f"config.json: layer_types: got {len(layer_types)}, expected {len(usual)}"
        )
    return tuple(window if layer_type == SLIDING else None for layer_type in layer_types)


def local_rope_base(
    data: ConfigJson, width: int, max_context: int, *, default: float = 10_000.0
) -> float:
    """The base of the rotary positions of layers with a window, which are not scaled.

    `default` is what it means that a file does not have it. Raises ConfigError.
    """
    base = data.number("rope_local_base_freq", default=default)  # the key of older files
    if not data.has("rope_parameters"):
        return base
    rope = data.rope(width, max_context, layer_type=SLIDING)
    if rope != Rope(base=rope.base):
        raise ConfigError(f"rope_parameters: {SLIDING}: rope_type: supported is default")
    return rope.base
