"""GGUF metadata of one architecture. A key that the architecture does not ask for is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from typing_extensions import override

from hearthd.models.config import ConfigError, require
from hearthd.models.decoder.config.projector_metadata import PREFIX, ProjectorMetadata
from hearthd.models.decoder.config.rope_scaling import Rope, yarn_divisors, yarn_magnitude
from hearthd.models.decoder.config.typed_keys import TypedKeys

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from hearthd.models.decoder.config.projector_metadata import Activation, TowerKind

ROPE_DIVISORS = "rope_freqs.weight"
LONG_DIVISORS, SHORT_DIVISORS = "rope_factors_long.weight", "rope_factors_short.weight"
ROPE_TABLES = (ROPE_DIVISORS, LONG_DIVISORS, SHORT_DIVISORS)
# Starts of keys about towers for images and sound, beside the text model.
_TOWERS = ("audio.", "mm.", "vision.")
_POOLINGS = {1: "mean", 2: "cls", 3: "last", 4: "rank"}  # as llama.cpp numbers them
_NORMS = ("layer_norm", "layer_norm_rms")
_WINDOW = "attention.sliding_window"
# Keys that change nothing in inference.
_IGNORED = frozenset({"rope.scaling.finetuned", "tensor_data_layout"})


class GgufMetadata(TypedKeys):
    """Reads the keys of one architecture, without its prefix, and facts about the tensors.

    metadata      all keys of the file
    tensors       the shapes of the file's tensors
    read          the values of a tensor; only small ones are read
    architecture  the value that `general.architecture` must have
    """

    def __init__(
        self,
        metadata: Mapping[str, Any],
        tensors: Mapping[str, tuple[int, ...]],
        read: Callable[[str], NDArray[np.float32]],
        architecture: str,
    ) -> None:
        name = metadata.get("general.architecture")
        if name != architecture:
            raise ConfigError(f"general.architecture: expected {architecture}, got {name!r:.80}")
        prefix = f"{architecture}."
        data = {
            key.removeprefix(prefix): value
            for key, value in metadata.items()
            if key.startswith(prefix)
        }
        super().__init__(data, prefix)
        self._metadata = metadata
        self._projectors: list[ProjectorMetadata] = []
        self._tensors = tensors
        self._values = read
        self._tables = {name for name in tensors if name in ROPE_TABLES}

    def has_tensor(self, name: str) -> bool:
        """Whether the file has a tensor."""
        return name in self._tensors

    def projector(
        self,
        type_: str,
        width: int,
        tensor: str,
        *,
        axis: int,
        tower: TowerKind = "vision",
        activation: Activation | None = "gelu",
    ) -> ProjectorMetadata:
        """The keys of a tower in the projector file with this type.

        `tensor` is the matrix of the projection, which has the hidden width of the text model along
        an axis. `activation` is the tower's. Raises OtherFamily for a projector of another type,
        or ConfigError for one of another width, or if there is none.
        """
        keys = ProjectorMetadata(self._metadata, type_, tower, activation)
        self._projectors.append(keys)
        shape = self._tensors.get(tensor, ())
        if len(shape) != 2:
            raise ConfigError(f"the projector has no matrix {tensor}; download its file again")
        if shape[axis] != width:
            raise ConfigError(
                f"{tensor}: got a projection to width {shape[axis]}, expected {width}; specify the "
                "projector of this model with --mmproj"
            )
        return keys

    @property
    def projector_type(self) -> str:
        """The projector type of the image tower, such as gemma4v; empty without a projector."""
        return self._projector_type("vision")

    @property
    def sound_projector_type(self) -> str:
        """The projector type of the tower for sound; empty without a projector."""
        return self._projector_type("audio")

    def _projector_type(self, tower: TowerKind) -> str:
        types = (self._metadata.get(f"{PREFIX}{key}projector_type") for key in (f"{tower}.", ""))
        return next((str(type_) for type_ in types if type_), "")

    @property
    def vocabulary_rows(self) -> int:
        """V, from the embedding table."""
        return self.rows("token_embd.weight")

    def rows(self, name: str, *, axis: int = 0) -> int:
        """The rows, or another extent, of a tensor that the file must have."""
        if name not in self._tensors:
            raise ConfigError(f"the file has no tensor {name}")
        shape = self._tensors[name]
        if axis >= len(shape):
            raise ConfigError(f"{name}: got shape {shape}, expected more than {axis} axes")
        return shape[axis]

    def constant(self, name: str, width: int) -> float:
        """The number that all values of a vector have; raises ConfigError for several."""
        if self._tensors.get(name) != (width,):
            raise ConfigError(f"{name}: got shape {self._tensors.get(name)}, expected ({width},)")
        values = {float(value) for value in self._values(name)}
        if len(values) != 1:
            raise ConfigError(f"{name}: got {len(values)} different numbers, supported is one")
        value = values.pop()
        require(value, float, name)
        return value

    def windows_by_layer(
        self, layers: int, period: int | None = None, *, last: bool = True
    ) -> tuple[int | None, ...]:
        """For each layer, the keys that a token sees, itself included; None: all of them.

        period  the last of this many layers sees all of them, where the file does not say the
                layers, and a file without a window has none: empty. None: the file has both
        last    whether it is the last of them, and not the first
        """
        pattern = "attention.sliding_window_pattern"
        window = self.window() if period else self.size(_WINDOW)
        if window is None:
            return ()
        if period is None:
            slides = self._list(pattern, bool)
        else:
            usual = [(layer + last) % period != 0 for layer in range(layers)]
            slides = self._list(pattern, bool, default=usual)
        return tuple(window if slide else None for slide in slides)

    def window(self) -> int | None:
        """The keys that a token sees, itself included; None: all, which a file may say as 0."""
        return self.count(_WINDOW, default=0) or None

    def epsilon(self, kind: Literal["layer_norm", "layer_norm_rms"]) -> float:
        """The epsilon of a model's norms. A file has it under one key, the other, or both."""
        key, other = (f"attention.{name}_epsilon" for name in sorted(_NORMS, key=kind.__ne__))
        usual = self.number(other, default=None)
        return self.number(key) if usual is None else self.number(key, default=usual)

    def flags_by_layer(self, key: str, usual: Sequence[bool]) -> list[bool]:
        """A flag for each layer; a file may have one for all of them, or none: `usual`.

        Raises ConfigError for flags of another number of layers.
        """
        if isinstance(self._data.get(key), bool):
            return [self.flag(key, default=False)] * len(usual)
        flags = self._list(key, bool, default=usual)
        if len(flags) != len(usual):
            raise ConfigError(
                f"{self._prefix}{key}: got {len(flags)} flags, expected one for each of "
                f"{len(usual)} layers"
            )
        return flags

    def fixed(self, key: str, supported: int) -> None:
        """Raise ConfigError where a key is there and has another than the only supported value."""
        got = self.size(key, default=supported)
        if got != supported:
            raise ConfigError(f"{self._prefix}{key} is {got}, supported is {supported}")

    def meaning(self, key: str, meanings: Mapping[int, str], *, default: int) -> str:
        """What the number of a key means; raises ConfigError for a number without a meaning."""
        number = self.size(key, default=default)
        if number not in meanings:
            raise ConfigError(f"{self._prefix}{key}: got {number}, supported: {[*meanings]}")
        return meanings[number]

    def pooling(self, key: str = "pooling_type", *, usual: str = "mean") -> str:
        """The vector of a text, or `rank`: the score of a pair. `usual` without the key."""
        number = self.size(key, default=None)
        if number is None:
            return usual
        if number not in _POOLINGS:
            raise ConfigError(f"{self._prefix}{key}: got {number}, supported: {[*_POOLINGS]}")
        return _POOLINGS[number]

    def require_both_directions(self) -> None:
        """Raise ConfigError for a model whose tokens see only those before them."""
        if self.flag("attention.causal", default=False):
            raise ConfigError(f"{self._prefix}attention.causal is True, supported is False")

    def divisors(self, name: str, width: int) -> tuple[float, ...]:
        """A table of rotary divisors, one for each of `width` / 2 frequencies."""
        shape = self._tensors[name]
        self._tables.discard(name)
        if shape != (width // 2,):
            raise ConfigError(f"{name}: got shape {shape}, expected ({width // 2},)")
        values = tuple(float(value) for value in self._values(name))
        for value in values:
            require(value, float, name)
        return values

    def rope(
        self, width: int, max_context: int, default_base: float, *, truncate_yarn: bool = True
    ) -> Rope:
        """The rotary positions of heads; `width` of their columns turn.

        For `truncate_yarn` see `yarn_divisors`; files do not say it.
        """
        self.fixed("rope.dimension_count", width)
        base = self.number("rope.freq_base", default=default_base)
        # As in llama.cpp: a factor without a type is linear, and older files call it scale_linear.
        scaling = self._scaling()
        older = self.number("rope.scale_linear", default=1.0)
        factor = self.number("rope.scaling.factor", default=older)
        original = self.size("rope.scaling.original_context_length", default=max_context)
        magnitude = self.number("rope.scaling.attn_factor", default=1.0)
        if (share := self.number("rope.scaling.yarn_ext_factor", default=1.0)) != 1:
            raise ConfigError(
                f"{self._prefix}rope.scaling.yarn_ext_factor: got {share}, supported: 1"
            )
        if scaling not in ("none", "linear", "yarn"):
            raise ConfigError(
                f"{self._prefix}rope.scaling.type: {scaling!r:.80} is not supported, only none, "
                "linear and yarn"
            )
        if scaling == "yarn":
            every_dim = self.number("rope.scaling.yarn_log_multiplier", default=None)
            divided_by = yarn_magnitude(factor, every_dim) if every_dim else 1.0
            usual = yarn_magnitude(factor) / divided_by
            return Rope(
                base=base,
                magnitude=magnitude * self.number("rope.scaling.yarn_attn_factor", default=usual),
                divisors=yarn_divisors(
                    base,
                    width,
                    factor=factor,
                    fast=self.number("rope.scaling.yarn_beta_fast", default=32.0),
                    slow=self.number("rope.scaling.yarn_beta_slow", default=1.0),
                    original_context=original,
                    truncate=truncate_yarn,
                ),
            )
        divisors: tuple[float, ...] = ()
        if self.has_tensor(ROPE_DIVISORS):
            divisors = self.divisors(ROPE_DIVISORS, width)
        return Rope(
            base=base,
            factor=factor if scaling == "linear" else 1.0,
            divisors=divisors,
            magnitude=magnitude,
        )

    def _scaling(self) -> str:
        """The scaling of rotary positions, except tables of LongRoPE, which a family reads."""
        scaling = self.text("rope.scaling.type", default="linear")
        return "none" if scaling == "longrope" and self.has_tensor(LONG_DIVISORS) else scaling

    @override
    def _value(self, key: str, expected_type: type, options: Mapping[str, Any]) -> Any:
        """As llama.cpp reads it: a file may repeat a number for every layer."""
        value = self._data.get(key)
        if expected_type is int and isinstance(value, list) and len(set(map(repr, value))) == 1:
            self._read.add(key)
            require(value[0], int, f"{self._prefix}{key}")
            return value[0]
        return super()._value(key, expected_type, options)

    def finish(self) -> None:
        """Raise ConfigError for keys and tables of the architecture that were not asked for."""
        for keys in self._projectors:
            keys.finish()
        unread = self._data.keys() - self._read - _IGNORED
        unknown = sorted(key for key in unread if not key.startswith(_TOWERS))
        if unknown:
            raise ConfigError(
                f"{self._prefix}*: unknown key {', '.join(unknown):.200}: "
                "it may change what the model computes"
            )
        if self._tables:
            raise ConfigError(
                f"tensor {', '.join(sorted(self._tables))}: {self._prefix}rope.* does not use it: "
                "it may change what the model computes"
            )
