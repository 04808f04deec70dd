"""The decoder of a tokenizer.json, without what depends on the position of a token in a text.

An answer is decoded in pieces, and a grammar needs the text of one token: the pieces, joined, must
be the text of all tokens.

The vocabulary of the file exists beside this: a pattern is `str() as text`, for `str(text)` looks
"__match_args__" up, in a new text that Python's cache of attributes keeps, and with it an arena of
1 MiB (see `no_other_thread`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_MAX_CONTENT = 64  # characters that a decoder may put in the place of a match
# The characters of a token that stands for a byte.
_BYTE_TOKEN = frozenset("<0x123456789ABCDEF>")


class InvalidDecoder(ValueError):
    """A decoder with which the pieces of an answer would not join to its text."""


def answer_decoder(decoder: Any) -> Any:
    """The decoder for answers; raises InvalidDecoder.

    Metaspace and Strip remove the space in front of a text, and so of every piece. The text
    keeps this space.
    """
    given = list(_parts(decoder))
    if given and given[0].get("type") == "ByteLevel":
        parts = [component for component in given if component.get("type") not in ("Strip", "Fuse")]
        if len(parts) > 1:
            raise InvalidDecoder(_unsupported(parts[1]))
    else:
        parts = list(_independent(given))
    if not parts:
        raise InvalidDecoder(f"decoder: got {decoder!r:.80}, expected one that joins tokens")
    if parts == given and len(parts) > 1:
        return decoder
    return parts[0] if len(parts) == 1 else {"type": "Sequence", "decoders": parts}


def _independent(parts: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """The components that decode a token, or a character of the joined text, on its own."""
    earlier: list[Mapping[str, Any]] = []
    joined = False
    for component in parts:
        match component:
            case {"type": "Replace", "content": str() as content} if len(content) > _MAX_CONTENT:
                raise InvalidDecoder(
                    f"decoder: Replace has a content of {len(content)} characters, expected at "
                    f"most {_MAX_CONTENT}"
                )
            case {"type": "Fuse"}:
                joined = True
                yield component
            case {"type": "Strip"} if joined:
                continue
            case {"type": "Metaspace", "replacement": str() as space}:
                component = {"type": "Replace", "pattern": {"String": space}, "content": " "}
                yield component
            case {"type": "Replace", "pattern": {"String": str() as text}} if len(text) == 1:
                yield component
            # The library panics where it strips both ends of a short token.
            case {"type": "Replace"} | {"type": "Strip", "stop": 0} if not joined:
                yield component
            case {"type": "ByteFallback"} if not joined and not any(map(_changes_bytes, earlier)):
                yield component
            case _:
                raise InvalidDecoder(_unsupported(component))
        earlier.append(component)


def _unsupported(component: Mapping[str, Any]) -> str:
    return (
        f"decoder: {component.get('type')} is not supported here, because the text of a token "
        f"would depend on others: got {dict(component)!r:.120}, expected ByteLevel, or Replace, "
        "ByteFallback and Fuse"
    )


def _parts(decoder: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(decoder, dict):
        nested = decoder.get("decoders") if decoder.get("type") == "Sequence" else None
        if isinstance(nested, list):
            for each in nested:
                yield from _parts(each)
        else:
            yield decoder


def _changes_bytes(component: Mapping[str, Any]) -> bool:
    """Whether a component may change a token into or from one that stands for a byte."""
    match component:
        case {"type": "Replace", "pattern": {"String": str() as text}, "content": str() as content}:
            return bool(_BYTE_TOKEN & {*text, *content})
        case {"type": "Strip", "content": str() as text}:
            return text in _BYTE_TOKEN
        case {"type": "ByteFallback"}:
            return False
        case _:
            return True
