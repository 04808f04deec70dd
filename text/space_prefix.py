"""Tokenizers that put a space in front of a text, without that space.

SentencePiece reads "yes" as " yes". So does the library where a file says so, in one of three ways:
the normalizer Prepend, in front of a text and of what follows a special token; the pre-tokenizer
Metaspace, there too or at the start of a text only; and the pre-tokenizer ByteLevel.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeAlias

import tokenizers

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Part: TypeAlias = "Mapping[str, Any]"

# A tokenizer without a vocabulary, whose other parts the library reads from JSON.
_EMPTY = {"version": "1.0", "added_tokens": [], "model": {"type": "BPE", "vocab": {}, "merges": []}}


def inside(tokenizer: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    """The tokenizer for a text that continues another one: itself if it adds no space."""
    return _changed(tokenizer, _without_space)


def after_special(tokenizer: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    """The tokenizer for the text after a special token, as it reads it in a whole text."""
    return _changed(tokenizer, _without_space_at_start)


def _without_space(component: Part) -> Part:
    match component:
        case {"type": "Prepend"}:
            return {"type": "Sequence", "normalizers": []}
        case {"type": "Metaspace"}:
            return {**component, "prepend_scheme": "never"}
        case {"type": "ByteLevel"}:
            return {**component, "add_prefix_space": False}
        case _:
            return component


def _without_space_at_start(component: Part) -> Part:
    match component:
        case {"type": "Metaspace", "prepend_scheme": "first"}:
            return {**component, "prepend_scheme": "never"}
        case _:
            return component


def _changed(
    tokenizer: tokenizers.Tokenizer, change: Callable[[Part], Part]
) -> tokenizers.Tokenizer:
    """A tokenizer with the same vocabulary in memory, and other parts in front of its model."""
    parts = {"normalizer": tokenizer.normalizer, "pre_tokenizer": tokenizer.pre_tokenizer}
    before = {
        name: json.loads(component.__getstate__()) for name, component in parts.items() if component
    }
    after = {name: _mapped(component, change) for name, component in before.items()}
    if after == before:
        return tokenizer
    result = tokenizers.Tokenizer.from_str(json.dumps(_EMPTY | after))
    result.model = tokenizer.model
    added = tokenizer.get_added_tokens_decoder()
    result.add_tokens([added[id_] for id_ in sorted(added)])
    return result


def _mapped(component: Part, change: Callable[[Part], Part]) -> Part:
    """A part, or each part of a sequence, after a change."""
    if component["type"] != "Sequence":
        return change(component)
    return {
        name: [_mapped(each, change) for each in value] if isinstance(value, list) else value
        for name, value in component.items()
    }
