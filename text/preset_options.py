"""Options of Ollama as the settings of requests that a bundle has."""

from __future__ import annotations

import dataclasses
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from hearthd.bundle import MAX_STOP_LENGTH, MAX_STOPS
from hearthd.sampling.options import SamplingParameters
from hearthd.text.sampling_text import expected_parameter

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hearthd.bundle import Preset

_LENGTHS = {"num_predict": "max_tokens", "num_ctx": "context"}
# How Ollama loads a model, and options that it has removed.
_WITHOUT_EFFECT = {
    *("num_keep", "num_batch", "num_gpu", "main_gpu", "num_thread", "use_mmap", "use_mlock"),
    *("low_vram", "f16_kv", "numa", "vocab_only", "logits_all", "embedding_only", "num_gqa"),
    *("rope_frequency_base", "rope_frequency_scale", "draft_num_predict", "penalize_newline"),
    "tfs_z",
}
_MAX_INTEGER = 2**63


def preset_fields(options: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a Preset for options of Ollama; raises ValueError, which names the option.

    Options that say how a model is loaded have no effect.
    """
    fields: dict[str, Any] = {}
    sampling: dict[str, int | float] = {}
    for name, value in options.items():
        if isinstance(value, float) and value.is_integer() and _is_integer(name):
            value = int(value)
        if name == "stop":
            fields["stop"] = _stop(value)
        elif name == "seed":
            fields["seed"] = _integer(name, value)
        elif name in _LENGTHS:
            limit = _integer(name, value)
            fields[_LENGTHS[name]] = limit if limit > 0 else None
        elif name not in _WITHOUT_EFFECT:
            if name not in SamplingParameters.__dataclass_fields__:
                raise ValueError(f"{name}: unknown parameter{_similar(name)}")
            if reason := expected_parameter(name, value):
                raise ValueError(f"{name}: got {value!r:.80}, expected {reason}")
            sampling[name] = value
    return {**fields, "sampling": sampling} if sampling else fields


def combined(fields: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a preset, some with other values; sampling parameters are replaced one by one."""
    sampling = {**fields.get("sampling", {}), **changes.get("sampling", {})}
    return {**fields, **changes, "sampling": sampling}


def changed(preset: Preset, changes: Mapping[str, Any]) -> Preset:
    """A preset with other values of some fields, as `combined`."""
    return dataclasses.replace(preset, **combined({"sampling": preset.sampling}, changes))


def _is_integer(name: str) -> bool:
    return name in ("seed", *_LENGTHS) or isinstance(getattr(SamplingParameters, name, 0.0), int)


def _integer(name: str, value: Any) -> int:
    if type(value) is not int or not -_MAX_INTEGER <= value < _MAX_INTEGER:
        raise ValueError(f"{name}: got {value!r:.80}, expected an integer")
    return value


def _stop(value: Any) -> tuple[str, ...]:
    texts = [value] if isinstance(value, str) else value
    if (
        not isinstance(texts, list)
        or len(texts) > MAX_STOPS
        or not all(isinstance(text, str) and len(text) <= MAX_STOP_LENGTH for text in texts)
    ):
        raise ValueError(
            f"stop: got {value!r:.80}, expected at most {MAX_STOPS} strings of up to "
            f"{MAX_STOP_LENGTH} characters"
        )
    return tuple(filter(None, texts))  # an empty one stops nothing


def _similar(name: str) -> str:
    """The end of an error for an option that does not exist."""
    names = [*SamplingParameters.__dataclass_fields__, "stop", "seed", *_LENGTHS]
    similar = get_close_matches(name, names, n=1)
    return f"; did you mean {similar[0]}?" if similar else ""
