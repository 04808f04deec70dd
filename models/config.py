"""The configuration that all architectures share, and its errors."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

if TYPE_CHECKING:
    from collections.abc import Mapping


# Far above all known models, and far below what a machine could not count with.
MAX_LAYERS = 1024
MAX_HEAD_DIM = 8192
# Limits of fields, which some architectures do not have. A program has ops for each layer, tap of a
# convolution and stream.
_LIMITS = {"layers": MAX_LAYERS, "head_dim": MAX_HEAD_DIM, "taps": 64, "streams": 64}
MAX_SIZE = 2**31 - 1
MAX_NUMBER = 1e31
MAX_ROPE_POSITIONS = 2**18


class ConfigError(Exception):
    """A configuration that this version cannot run; the message names the key."""


class OtherFamily(ConfigError):
    """A configuration of another family of the same name in files; the message says why."""


class ImageShape(NamedTuple):
    """Square images of `side` x `side` pixels; each gives `rows` rows of embeddings."""

    side: int
    rows: int


class ImageGrid(NamedTuple):
    """Images of any size, in patches.

    patch   pixels of a side of a patch
    merged  patches of a side of the square that gives one row of embeddings
    most    the most patches of an image whose rows of embeddings have a fixed number; 0: each
            square gives one
    """

    patch: int
    merged: int
    most: int = 0

    def patches_of(self, rows: int) -> int:
        """The patches that an entry point for a number of rows of embeddings reads."""
        return self.most or rows * self.merged**2


class SoundShape(NamedTuple):
    """Sound, in frames of `width` values; `frames` of them give one row of embeddings.

    margin  further frames that a tower reads, behind the frames of the last row
    """

    width: int
    frames: int
    margin: int = 0


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """The shape of a transformer; an architecture adds its own fields.

    hidden       E, the width of a hidden state
    ffn          the width between the matrices of an MLP
    heads        H, query heads
    kv_heads     G, key/value heads
    head_dim     D, the width of a head
    max_context  the context that the model was trained for, in tokens
    vocab_size   V, rows of the embedding table
    norm_eps     what RMSNorm adds to the mean square, or LayerNorm to the variance
    pooling      the vector of a text, one of `poolings`: the mean of the hidden states after the
                 last norm, or the last one
    """

    poolings: ClassVar[tuple[str, ...]] = ("mean", "last")

    layers: int
    hidden: int
    ffn: int
    heads: int
    kv_heads: int
    head_dim: int
    max_context: int
    vocab_size: int
    norm_eps: float
    pooling: str = "mean"

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            _require_field(getattr(self, field.name), str(field.type), field.name)
        if self.pooling not in self.poolings:
            raise ConfigError(
                f"pooling: got {self.pooling!r:.80}, supported: {', '.join(self.poolings)}"
            )
        for name, limit in _LIMITS.items():
            if (size := getattr(self, name, 0)) > limit:
                raise ConfigError(f"{name}: got {size}, expected at most {limit}")
        if self.heads % self.kv_heads:
            raise ConfigError(f"{self.heads} heads cannot share {self.kv_heads} key/value heads")
        if self.head_dim % 2:
            raise ConfigError(f"head_dim must be even for rotary positions, got {self.head_dim}")

    @property
    def cached_layers(self) -> int:
        """The number of layers with caches, the first ones; later layers read these caches."""
        return self.layers

    @property
    def image(self) -> ImageShape | ImageGrid | None:
        """The images that the model reads; None if it reads none."""
        return None

    @property
    def sound(self) -> SoundShape | None:
        """The sound that the model reads; None if it reads none."""
        return None

    @property
    def reads_rows(self) -> bool:
        """Whether the model has a tower, whose rows of embeddings it reads."""
        return self.image is not None or self.sound is not None

    @property
    def row_width(self) -> int:
        """The width of a row of embeddings: `hidden`, or a multiple of it.

        The first layer reads the first part; each further part is added to what a layer computes,
        from the first layer on (DeepStack).
        """
        return self.hidden

    @property
    def has_fine_towers(self) -> bool:
        """Whether towers need more than 8 bits: rounding to 8 changes answers too much."""
        return False

    def looks_ahead(self, layer: int) -> bool:  # noqa: ARG002
        """Whether a layer lets each row of an image see the later ones too."""
        return False

    @property
    def has_blocks(self) -> bool:
        """Whether the rows of an image see each other in some layers."""
        return any(map(self.looks_ahead, range(self.layers)))

    @property
    def rotary_axes(self) -> int:
        """Axes of the rotary position of a row of an image; 1: the row has a token's position."""
        return 1

    @property
    def auto_context(self) -> int:
        """The longest context that changes nothing in shorter texts.

        `f.rope_table` is exact up to MAX_ROPE_POSITIONS.
        """
        return min(self.max_context, MAX_ROPE_POSITIONS)

    def for_context(self, _: int) -> Self:
        """The configuration for programs whose slots have a number of positions."""
        return self


_FIELD_TYPES: Mapping[str, type] = {"int": int, "float": float, "bool": bool, "str": str}


def _require_field(value: Any, annotation: str, key: str) -> None:
    """Raise ConfigError unless a value has the type that the annotation of its field names."""
    if annotation.startswith("tuple["):
        require(value, tuple, key)
        for item in value:
            _require_field(item, annotation.removeprefix("tuple[").removesuffix(", ...]"), key)
    elif value is not None or not annotation.endswith(" | None"):
        require(value, _FIELD_TYPES[annotation.removesuffix(" | None")], key)


def require(value: Any, expected_type: type, key: str) -> None:
    """Raise ConfigError unless a value has a type: an int is a size, a float is above zero.

    An int is a float too, as in JSON.
    """
    if expected_type is int:
        fits = type(value) is int and 1 <= value <= MAX_SIZE
        expected = f"an integer, 1 to {MAX_SIZE}"
    elif expected_type is float:
        fits = type(value) in (int, float) and 0 < value < MAX_NUMBER
        expected = f"a number above zero and below {MAX_NUMBER}"
    else:
        fits = isinstance(value, expected_type)
        expected = f"a value of type {expected_type.__name__}"
    if not fits:
        raise ConfigError(f"{key}: expected {expected}, got {value!r:.80}")
