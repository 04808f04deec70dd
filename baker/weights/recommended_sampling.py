"""How weights say that tokens are sampled: with which parameters by default, and which never."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hearthd.baker.tokenizer.folder_template import read_optional
from hearthd.baker.tokenizer.tokenizer_files import GENERATION_CONFIG
from hearthd.text.sampling_text import valid_parameters

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hearthd.baker.weights.source import WeightSource

# Sampling parameters by their names in generation_config.json, and behind general.sampling in GGUF.
_IN_A_FOLDER = {
    "temperature": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "typical_p": "typical_p",
    "repetition_penalty": "repeat_penalty",
}
_IN_GGUF = {
    "temp": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "xtc_probability": "xtc_probability",
    "xtc_threshold": "xtc_threshold",
    "penalty_last_n": "repeat_last_n",
    "penalty_repeat": "repeat_penalty",
    "mirostat": "mirostat",
    "mirostat_tau": "mirostat_tau",
    "mirostat_eta": "mirostat_eta",
}
_SUPPRESSED_IN_GGUF = "tokenizer.ggml.suppress_tokens"


def recommended_sampling(source: WeightSource) -> dict[str, int | float]:
    """The sampling parameters that weights recommend, without those that are out of range."""
    if source.folder is not None:
        found = _renamed(read_optional(source.folder / GENERATION_CONFIG), _IN_A_FOLDER)
    else:
        keys = {f"general.sampling.{key}": name for key, name in _IN_GGUF.items()}
        found = _renamed(source.metadata(), keys)
    return valid_parameters(found)


def suppressed_tokens(source: WeightSource, vocab_size: int) -> tuple[int, ...]:
    """The ids that weights say are never sampled, such as Gemma 4's tokens for images."""
    if source.folder is not None:
        values = read_optional(source.folder / GENERATION_CONFIG).get("suppress_tokens")
    else:
        values = source.metadata().get(_SUPPRESSED_IN_GGUF)
    ids = [id_ for id_ in values if type(id_) is int] if isinstance(values, list) else []
    return tuple(sorted({id_ for id_ in ids if 0 <= id_ < vocab_size}))


def _renamed(values: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    return {
        # A float of 32 bits as it was written: 0.6, not 0.6000000238.
        name: float(f"{value:.7g}") if isinstance(value, float) else value
        for key, name in names.items()
        if (value := values.get(key)) is not None
    }
