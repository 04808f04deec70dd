"""The decoder of a tokenizer.json, without what depends on the position of a token in a text.

An answer is decoded in pieces, and a grammar needs the text of one token: the pieces, joined, must
be the text of all tokens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

# The characters of a token that stands for a byte.
_BYTE_TOKEN = frozenset("<0x123456789ABCDEF>")


class InvalidDecoder(ValueError):
    """A decoder with which the pieces of an answer would not join to its text."""


def answer_decoder(decoder: Any) -> Any:
    """The decoder for answers; raises InvalidDecoder.

    Metaspace and Strip remove the space in front of a text, and so that of every piece. The text
    keeps this space.
    """
    given = list(_parts(decoder))
    if given and given[0].get("type") == "ByteLevel":
        parts = [part for part in given if part.get("type") not in ("Strip", "Fuse")]
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
    """Parts that decode a token, or a character of the joined text, independently of others."""
    earlier: list[Mapping[str, Any]] = []
    joined = False
    for part in parts:
        match part:
            case {"type": "Fuse"}:
                joined = True
                yield part
            case {"type": "Strip"} if joined:
                continue
            case {"type": "Metaspace", "replacement": str(space)}:
                part = {"type": "Replace", "pattern": {"String": space}, "content": " "}
                yield part
            case {"type": "Replace", "pattern": {"String": str(text)}} if len(text) == 1:
                yield part
            # The library panics where it strips both ends of a short token.
            case {"type": "Replace"} | {"type": "Strip", "stop": 0} if not joined:
                yield part
            case {"type": "ByteFallback"} if not joined and not any(map(_changes_bytes, earlier)):
                yield part
            case _:
                raise InvalidDecoder(_unsupported(part))
        earlier.append(part)


def _unsupported(part: Mapping[str, Any]) -> str:
    return (
        f"decoder: {part.get('type')} is not supported here, because the text of a token would "
        f"depend on others: got {dict(part)!r:.120}, expected ByteLevel, or Replace, ByteFallback "
        "and Fuse"
    )


def _parts(decoder: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(decoder, dict):
        nested = decoder.get("decoders") if decoder.get("type") == "Sequence" else None
        if isinstance(nested, list):
            for each in nested:
                yield from _parts(each)
        else:
            yield decoder


def _changes_bytes(part: Mapping[str, Any]) -> bool:
    """Whether a part may change a token into or from one that stands for a byte."""
    match part:
        case {"type": "Replace", "pattern": {"String": str(text)}, "content": str(content)}:
            return bool(_BYTE_TOKEN & {*text, *content})
        case {"type": "Strip", "content": str(text)}:
            return text in _BYTE_TOKEN
        case {"type": "ByteFallback"}:
            return False
        case _:
            return True
