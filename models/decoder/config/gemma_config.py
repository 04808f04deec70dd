"""How the configurations of Gemma models are read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hearthd.models.decoder.config.config_json import ConfigJson
from hearthd.models.decoder.config.decoder_config import (
    every_nth_layer_sees_all,
    from_config_json,
    from_gguf_metadata,
    not_every_nth,
    windows_by_type,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata
    from hearthd.models.decoder.config.rope_scaling import Rope
    from hearthd.models.decoder.config.typed_keys import TypedKeys


def gemma_keys(data: ConfigJson, *, bidirectional: bool | str = False) -> None:
    """Read the keys that all Gemma models have; raise for values that are not supported."""
    data.fixed(hidden_activation="gelu_pytorch_tanh", use_bidirectional_attention=bidirectional)
    data.assume(tie_word_embeddings=True, rms_norm_eps=1e-6)


def config_fields(
    data: ConfigJson,
    period: int,
    read_rope: Callable[[ConfigJson, int, int], Rope] = ConfigJson.rope,
    *,
    bidirectional: bool = False,
) -> dict[str, Any]:
    """The fields of Gemma 2 and 3, from config.json; raises ConfigError.

    period     the last of this many layers has no window, unless the file says the layers
    read_rope  see `from_config_json`
    """
    gemma_keys(data, bidirectional=bidirectional)
    fields = from_config_json(data, read_rope)
    return fields | {
        "windows": windows_by_type(data, not_every_nth(period, fields["layers"])),
        "query_scale": data.number("query_pre_attn_scalar") ** -0.5,
    }


def gguf_fields(
    data: GgufMetadata,
    period: int,
    *,
    layers_27b: int,
    rope_base: float = 10_000.0,
    window: int | None = None,
) -> dict[str, Any]:
    """The fields of Gemma 2 and 3, from GGUF metadata; raises ConfigError.

    They do not state the scale of q k^T, which differs in the 27B, known by its depth. `window` is
    the meaning of a missing key; None: the key is required.
    """
    fields = from_gguf_metadata(data, rope_base=rope_base)
    is_27b = fields["layers"] == layers_27b
    width = fields["hidden"] / fields["heads"] if is_27b else fields["head_dim"]
    key = "attention.sliding_window"
    window = data.size(key) if window is None else data.size(key, default=window)
    return fields | {
        "windows": every_nth_layer_sees_all(period, fields["layers"], window),
        "query_scale": float(width**-0.5),
    }


def soft_caps(
    data: TypedKeys, *, attention: float | None = None, logit: float | None = None
) -> dict[str, Any]:
    """The soft caps of scores and logits, and what missing keys mean; raises ConfigError."""
    return {
        "attention_cap": data.number("attn_logit_softcapping", default=attention),
        "logit_cap": data.number("final_logit_softcapping", default=logit),
    }
