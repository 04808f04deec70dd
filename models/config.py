"""What the configurations of all architectures have in common, and how they refuse."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Set


# Far above all known models, and far below what a machine could not count with.
MAX_LAYERS = 1024
LARGEST = 2**31 - 1
# What GGUF keys hold that hold no size.
_GGUF_TYPES: Mapping[str, type] = {
    "attention.layer_norm_rms_epsilon": float,
    "rope.freq_base": float,
    "rope.freq_base_swa": float,
    "rope.scaling.factor": float,
    "rope.scaling.type": str,
}


class ConfigError(Exception):
    """A configuration that this version cannot run; the message names the key."""


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """The shape of a decoder; an architecture adds what is its own.

    hidden       E, the width of a hidden state
    ffn          the width between the matrices of an MLP
    heads        H, query heads
    kv_heads     G, key/value heads
    head_dim     D, the width of a head
    max_context  the context that the model was trained for, in tokens
    vocab_size   V, rows of the embedding table
    norm_eps     what RMSNorm adds to the mean square
    """

    layers: int
    hidden: int
    ffn: int
    heads: int
    kv_heads: int
    head_dim: int
    max_context: int
    vocab_size: int
    norm_eps: float

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            require(getattr(self, field.name), _FIELD_TYPES[str(field.type)], field.name)
        if self.layers > MAX_LAYERS:
            raise ConfigError(f"{self.layers} layers, expected at most {MAX_LAYERS}")
        if self.heads % self.kv_heads:
            raise ConfigError(f"{self.heads} heads cannot share {self.kv_heads} key/value heads")
        if self.head_dim % 2:
            raise ConfigError(f"head_dim must be even for rotary positions, got {self.head_dim}")


_FIELD_TYPES: Mapping[str, type] = {"int": int, "float": float, "bool": bool}


def require(value: Any, expected_type: type, key: str) -> None:
    """Raise ConfigError unless a value has a type: an int is a size, a float is above zero.

    An int is a float too, as in JSON.
    """
    if expected_type is int:
        fits, expected = type(value) is int and 1 <= value <= LARGEST, f"an integer, 1 to {LARGEST}"
    elif expected_type is float:
        fits = type(value) in (int, float) and 0 < value < math.inf
        expected = "a number above zero"
    else:
        fits = isinstance(value, expected_type)
        expected = f"a value of type {expected_type.__name__}"
    if not fits:
        raise ConfigError(f"{key}: expected {expected}, got {value!r:.80}")


def require_kinds(data: Mapping[str, Any], defaults: Mapping[str, Any]) -> None:
    """Raise ConfigError for a value of config.json that is not of its default's kind."""
    for key, default in defaults.items():
        if default is not None:
            require(data[key], type(default), f"config.json: {key}")


def required_float(data: Mapping[str, Any], key: str, where: str) -> float:
    """A number above zero that must be there; raises ConfigError."""
    if key not in data:
        raise ConfigError(f"{where}: {key} is missing")
    require(data[key], float, f"{where}: {key}")
    return float(data[key])


def refuse_unknown(data: Mapping[str, Any], known: Set[str], where: str) -> None:
    """Raise ConfigError for a key that may change what the model computes."""
    unknown = sorted(data.keys() - known)
    if unknown:
        raise ConfigError(
            f"{where}: unknown key {', '.join(unknown)}: it may change what the model computes"
        )


def refuse_other_values(data: Mapping[str, Any], fixed: Mapping[str, Any]) -> None:
    """Raise ConfigError where config.json says something else than the only supported value."""
    for key, supported in fixed.items():
        if data.get(key, supported) not in (supported, None if supported is False else supported):
            raise ConfigError(f"config.json: {key} = {data[key]!r}, supported is {supported!r}")


def gguf_keys(
    metadata: Mapping[str, Any], architecture: str, required: Set[str], optional: Set[str]
) -> dict[str, Any]:
    """The architecture's own keys of GGUF metadata, without their prefix.

    Raises ConfigError for another architecture, and for a key that is missing or unknown.
    """
    file_architecture = metadata.get("general.architecture")
    if file_architecture != architecture:
        raise ConfigError(
            f"general.architecture: expected {architecture}, got {file_architecture!r}"
        )
    prefix = f"{architecture}."
    values = {
        key.removeprefix(prefix): value for key, value in metadata.items() if key.startswith(prefix)
    }
    refuse_unknown(values, {*required, *optional}, f"{prefix}*")
    for key in sorted(required):
        if key not in values:
            raise ConfigError(f"{prefix}{key} is missing")
    for key, value in values.items():
        require(value, _GGUF_TYPES.get(key, int), f"{prefix}{key}")
    return values


def vocabulary_rows(tensors: Mapping[str, tuple[int, ...]]) -> int:
    """V of a GGUF file, from the shapes of its tensors; raises ConfigError."""
    if "token_embd.weight" not in tensors:
        raise ConfigError("the file has no tensor token_embd.weight")
    return tensors["token_embd.weight"][0]
