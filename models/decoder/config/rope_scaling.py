"""Scalings of rotary positions for contexts longer than a model was first trained for.

Every scaling divides each of the D / 2 frequencies by a number of its own. Source: the formulas of
transformers, modeling_rope_utils.py; YaRN is Peng et al., 2023, LongRoPE is Ding et al., 2024.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hearthd.models.config import MAX_HEAD_DIM, ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from hearthd.models.decoder.config.config_json import ConfigJson


_STILL = 1e30  # divides the frequency of columns that do not turn


@dataclass(frozen=True, kw_only=True)
class Rope:
    """Rotary positions: see `DecoderConfig`.

    long_divisors     those for a context beyond `original_context`; empty: the same
    original_context  the context that `divisors` were trained for, in tokens
    """

    base: float
    factor: float = 1.0
    divisors: tuple[float, ...] = ()
    magnitude: float = 1.0
    long_divisors: tuple[float, ...] = ()
    original_context: int = 0

    @property
    def fields(self) -> dict[str, Any]:
        """The fields of `DecoderConfig`."""
        return {
            "rope_base": self.base,
            "rope_factor": self.factor,
            "rope_divisors": self.divisors,
            "rope_magnitude": self.magnitude,
        }


def read(data: ConfigJson, base: float, width: int, max_context: int) -> Rope:
    """Rotary positions of heads; `width` of their columns turn. Raises ConfigError."""
    rope_type = data.text("rope_type", default=data.text("type", default="default"))
    if rope_type not in _READERS:
        raise ConfigError(
            f"rope_scaling: type {rope_type!r:.80} is not supported, only {', '.join(_READERS)}"
        )
    return _READERS[rope_type](data, base, width, max_context)


def _default(_: ConfigJson, base: float, __: int, ___: int) -> Rope:
    return Rope(base=base)


def _linear(data: ConfigJson, base: float, _: int, __: int) -> Rope:
    return Rope(base=base, factor=data.number("factor"))


def _dynamic(data: ConfigJson, base: float, _: int, max_context: int) -> Rope:
    """Not scaled: only texts longer than the context would be, and no program reads these."""
    data.number("factor", default=None)
    original = data.size("original_max_position_embeddings", default=max_context)
    if original < max_context:
        raise ConfigError(
            f"rope_scaling: dynamic: original_max_position_embeddings: got {original}, supported "
            f"is the whole context, {max_context}"
        )
    return Rope(base=base)


def _proportional(data: ConfigJson, base: float, width: int, _: int) -> Rope:
    """Only the first columns of each half of a head turn; as GGUF files have it."""
    _require_width(width)
    share = data.number("partial_rotary_factor", default=1.0)
    if share > 1:
        raise ConfigError(f"partial_rotary_factor: expected at most 1, got {share}")
    turning, factor = int(share * width // 2), data.number("factor", default=1.0)
    return Rope(base=base, divisors=(factor,) * turning + (_STILL,) * (width // 2 - turning))


def _require_width(width: int) -> None:
    """Raise ConfigError for heads that are far too wide: each column takes memory."""
    if width > MAX_HEAD_DIM:
        raise ConfigError(
            f"columns of a head that turn: got {width}, expected at most {MAX_HEAD_DIM}"
        )


def first_columns(base: float, turning: int, width: int) -> Rope:
    """The first `turning` of `width` columns turn, pairs of neighbors, which then are columns i and
    i + `width` / 2: of that pair, the frequency is base^(-2i / turning). Raises ConfigError."""
    if turning % 2 or turning > width:
        raise ConfigError(
            f"columns of a head that turn: got {turning}, expected an even number, at most {width}"
        )
    wide, narrow = _frequencies(base, width), _frequencies(base, turning)
    still = (_STILL,) * ((width - turning) // 2)
    return Rope(base=base, divisors=(*(wide[: turning // 2] / narrow).tolist(), *still))


def _frequencies(base: float, width: int) -> NDArray[np.float64]:
    _require_width(width)
    return np.asarray(base ** -(np.arange(0, width, 2) / width))


def _llama3(data: ConfigJson, base: float, width: int, max_context: int) -> Rope:
    original = data.size("original_max_position_embeddings", default=max_context)
    return Rope(
        base=base,
        divisors=llama3_divisors(
            base,
            width,
            factor=data.number("factor"),
            low=data.number("low_freq_factor"),
            high=data.number("high_freq_factor"),
            original_context=original,
        ),
    )


def llama3_divisors(
    base: float, width: int, *, factor: float, low: float, high: float, original_context: int
) -> tuple[float, ...]:
    """Frequencies with fewer than `low` turns in the original context are divided by the factor,
    those with more than `high` are kept; linear interpolation between them."""
    if low > high:
        raise ConfigError(f"rope_scaling: low_freq_factor {low} is above high_freq_factor {high}")
    turns = original_context * _frequencies(base, width) / (2 * math.pi)
    kept = (turns >= low).astype(np.float64)
    if low < high:
        kept = np.clip((turns - low) / (high - low), 0.0, 1.0)
    return tuple((1.0 / ((1.0 - kept) / factor + kept)).tolist())


def _yarn(data: ConfigJson, base: float, width: int, max_context: int) -> Rope:
    original = data.size("original_max_position_embeddings", default=max_context)
    factor = data.number("factor", default=max_context / original)
    magnitude = data.number("attention_factor", default=None)
    mscale = data.number("mscale", default=None)
    all_dims = data.number("mscale_all_dim", default=None)
    if magnitude is None:
        magnitude = yarn_magnitude(factor)
        if mscale and all_dims:
            magnitude = yarn_magnitude(factor, mscale) / yarn_magnitude(factor, all_dims)
    return Rope(
        base=base,
        magnitude=magnitude,
        divisors=yarn_divisors(
            base,
            width,
            factor=factor,
            fast=data.number("beta_fast", default=32.0),
            slow=data.number("beta_slow", default=1.0),
            original_context=original,
            truncate=data.flag("truncate", default=True),
        ),
    )


def yarn_magnitude(factor: float, scale: float = 1.0) -> float:
    """YaRN's factor of cosines and sines."""
    return 1.0 if factor <= 1 else 0.1 * scale * math.log(factor) + 1.0


def yarn_divisors(
    base: float,
    width: int,
    *,
    factor: float,
    fast: float,
    slow: float,
    original_context: int,
    truncate: bool = True,
) -> tuple[float, ...]:
    """Frequencies with more than `fast` turns in the original context are kept, those with fewer
    than `slow` are divided by the factor; a linear ramp over the index between them.

    `truncate` rounds the ends of the ramp to indices.
    """
    _require_width(width)
    if base <= 1:
        raise ConfigError(f"rope_theta: got {base}, expected more than 1 for yarn")
    low, high = (
        width * math.log(original_context / (turns * 2 * math.pi)) / (2 * math.log(base))
        for turns in (fast, slow)
    )
    if not (math.isfinite(low) and math.isfinite(high)):
        raise ConfigError(f"rope_scaling: the betas of yarn: got {fast} and {slow}, far from usual")
    if truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, width - 1)
    if low == high:
        high += 0.001
    scaled = np.clip((np.arange(width // 2) - low) / (high - low), 0.0, 1.0)
    return tuple((1.0 / (scaled / factor + (1.0 - scaled))).tolist())


_AXES = "mrope"  # the name in older files


def of_text(data: ConfigJson, width: int, max_context: int) -> Rope:
    """The rotary positions of a model of images: of a text, the positions of all axes agree."""
    section, base = data.rope_section()
    section.ignore("mrope_section", "mrope_interleaved")
    if section.text("rope_type", default=section.text("type", default="default")) == _AXES:
        section.ignore("type")
        return Rope(base=base)
    return read(section, base, width, max_context)


def longrope(data: ConfigJson, base: float, width: int, max_context: int, original: int) -> Rope:
    """LongRoPE: one table of divisors for the original context, one for longer ones."""
    factor = data.number("factor", default=max_context / original)
    magnitude = data.number("attention_factor", default=longrope_magnitude(factor, original))
    short, long = (tuple(data.numbers(f"{name}_factor")) for name in ("short", "long"))
    for name, divisors in (("short", short), ("long", long)):
        if len(divisors) != width // 2:
            raise ConfigError(
                f"rope_scaling: {name}_factor: got {len(divisors)} numbers, expected {width // 2}"
            )
    return Rope(
        base=base,
        divisors=short,
        long_divisors=long,
        original_context=original,
        magnitude=magnitude,
    )


def longrope_magnitude(factor: float, original_context: int) -> float:
    """LongRoPE's factor of cosines and sines, for a context of `factor` times the original."""
    if factor <= 1 or original_context <= 1:
        return 1.0
    return math.sqrt(1 + math.log(factor) / math.log(original_context))


_READERS: Mapping[str, Callable[[ConfigJson, float, int, int], Rope]] = {
    "default": _default,
    "dynamic": _dynamic,
    "linear": _linear,
    "llama3": _llama3,
    "proportional": _proportional,
    "yarn": _yarn,
}
