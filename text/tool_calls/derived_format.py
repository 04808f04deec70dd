"""The form of tool calls that a chat template writes, found by rendering probe calls.

The text of two calls shows what is around their names and arguments. Arguments are JSON, values in
XML, or the notation of Gemma or Python.
"""

from __future__ import annotations

import itertools
import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hearthd.text.text_overlap import shared_end
from hearthd.text.tool_calls.call_format import ID, NAME, NUMBER, SPACE, CallFormat
from hearthd.text.tool_calls.gemma_calls import FUNCTION_GEMMA, GEMMA_4
from hearthd.text.tool_calls.parameter_schemas import KINDS
from hearthd.text.tool_calls.python_calls import PYTHON
from hearthd.text.tool_calls.written_calls import (
    FIRST_ARGUMENTS,
    KEY,
    OTHER_KEY,
    OTHER_TEXT,
    SECOND_ARGUMENTS,
    TEXT,
)
from hearthd.text.tool_calls.xml_calls import Tags, XmlCalls

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hearthd.text.tool_calls.call_format import Elements
    from hearthd.text.tool_calls.written_calls import WrittenCalls

# As in templates: <tag>, </tag>, <|token|>, [TOKEN]; or the beginning of one with attributes.
_TAG = r"<[^<>\s]*>|<[^<>\s=]+(?:=|(?: \w+=\"))|\[/?[A-Z_]+\]"
_ELEMENT = re.compile(rf"(?P<tag>{_TAG})|(?P<id>probeid0\d)|(?P<space>\s+)|(?P<sign>[{{}}\[\],:])|"
                      r"(?P<number>(?<!\w)\d+(?!\w))|(?P<text>.)", re.DOTALL)  # fmt: skip
# A value of each type but a text, and how templates write it.
_VALUES: dict[str, tuple[Any, str]] = {
    "integer": (7654321, "7654321"),
    "number": (0.5, "0.5"),
    "boolean": (True, "[Tt]rue"),
    "null": (None, "null|None"),
    "array": (["probe"], r"\["),
    "object": ({"probe": 1}, r"\{"),
}
_MARKUP = "<b> & \n text"  # the characters for which templates wrap a value


def derived_format(calls: WrittenCalls, special_tokens: Sequence[str]) -> CallFormat | None:
    """The form of the calls that a template writes; None for a form of another kind.

    `special_tokens` are the names of all special tokens. Raises InvalidRequest.
    """
    found = _format(calls)
    if found is None or found.marker in calls.plain:
        return None
    texts = "".join([found.marker, *_texts(found)])
    shown = sorted((name for name in special_tokens if name in texts), key=len, reverse=True)
    return replace(found, special=tuple(dict.fromkeys((*found.special, *shown))))


def _texts(form: CallFormat) -> list[str]:
    parts = (form.opening, form.head, form.middle, form.tail, form.separator or (), form.closing)
    texts = [element for part in parts for element in part if isinstance(element, str)]
    if isinstance(form, XmlCalls):
        texts += [form.tags.begin, form.tags.end, *(text for text, _ in form.tags.named)]
    return texts


def _format(calls: WrittenCalls) -> CallFormat | None:
    if (first := _json_at(calls.between, FIRST_ARGUMENTS)) is not None:
        is_json = "{" in calls.before
        middle, end = calls.between[: first[0]], calls.between[first[1] :]
        if len(calls.calls) == 1:
            around = _around_single(_elements(calls.before, is_json), _elements(end, is_json))
        elif second := _json_at(calls.after, SECOND_ARGUMENTS):
            around = _around(calls.before, end, calls.after[second[1] :])
        else:
            return None
        return CallFormat(**around, middle=_elements(middle, is_json)) if around else None
    for known in (FUNCTION_GEMMA, GEMMA_4):
        if calls.between.startswith(f"{{{KEY}:{known.escape}{TEXT}{known.escape}}}"):
            return known if calls.before == f"{known.marker}call:" else None
    if re.match(rf"\({KEY}=(['\"]){TEXT}\1\)", calls.between):
        return PYTHON if calls.before.startswith(PYTHON.marker) else None
    return _in_xml(calls)


def _json_at(text: str, arguments: Mapping[str, Any]) -> tuple[int, int] | None:
    """Where a text has the arguments as JSON."""
    start = text.rfind("{", 0, max(text.find(f'"{KEY}"'), 0))
    try:
        value, end = json.JSONDecoder().raw_decode(text, start) if start >= 0 else (None, 0)
    except ValueError:
        return None
    return (start, end) if value == arguments else None


def _in_xml(calls: WrittenCalls) -> XmlCalls | None:
    """The form of calls with values between tags, or None."""
    before_key, key, rest = calls.between.partition(KEY)
    named, value, after_value = rest.partition(TEXT)
    other = calls.after.partition(TEXT)[2]
    between_values, other_key, other = other.partition(OTHER_KEY)
    after_other = other.partition(OTHER_TEXT)[2]
    shared = shared_end(before_key, between_values)
    at = shared.rfind("<")
    if not (key and value and other_key and named.strip()) or at < 0:
        return None
    begin = shared[at:]
    end = between_values.removesuffix(begin)
    all_named = _all_named(named, calls.written)
    if not end.strip() or not all_named or not after_other.startswith(end.rstrip()):
        return None
    # The line break after a value can be the one before the next parameter.
    end = end if after_value.startswith(end) else end.rstrip()
    rests = after_value[len(end) :], after_other[len(end) :]
    around = _around(calls.before, *rests)
    last = next((text for text in rests[1].split() if text), "")
    tag = re.match(_TAG, last)
    if not around or not tag:
        return None
    wraps = _wraps(calls.written, named, end)
    tags = Tags(begin=begin, named=all_named, end=end, wraps=wraps, last=tag[0])
    middle = _elements(before_key.removesuffix(begin), is_json=False) or (SPACE,)
    return XmlCalls(**around, middle=middle, json_texts=False, tags=tags)


def _all_named(
    named: str, call: Callable[[Mapping[str, Any]], str]
) -> tuple[tuple[str, frozenset[str]], ...]:
    """The texts between names and values with the types of the values; none in another form."""
    texts = {named: {"string"}}
    for kind, (value, written) in _VALUES.items():
        found = re.search(rf"{KEY}(.*?)({written})", call({KEY: value}), re.DOTALL)
        if found is None:
            return ()
        texts.setdefault(found[1], set()).add(kind)
    if len(texts) == 1:
        return ((named, KINDS),)
    return tuple((text, frozenset(kinds)) for text, kinds in texts.items())


def _wraps(
    call: Callable[[Mapping[str, Any]], str], named: str, end: str
) -> tuple[str, str] | None:
    """The texts around a value with markup, or None."""
    text = call({KEY: _MARKUP}).partition(KEY + named)[2]
    before, _, after = text.partition(_MARKUP)
    after = after.partition(end.strip())[0].strip()
    return (before, after) if before and after else None


def _around(before: str, between: str, after: str) -> dict[str, Any] | None:
    """The fields of a form from what is before, between and after two calls' names and arguments.

    None if calls have no marker that is a tag.
    """
    is_json = "{" in before
    first, inner, last = (_elements(text, is_json) for text in (before, between, after))
    head = _trimmed(_shared(first[::-1], inner[::-1])[::-1], end=False)
    opening = _trimmed(first[: len(first) - len(head)])
    tags = [index for index, element in enumerate(opening) if _is_tag(element)]
    opening = opening[tags[-1] :] if tags else opening
    rest = inner[: len(inner) - len(head)]
    tail = _shared(rest, last)
    if any(isinstance(element, _Run) for element in opening):
        return None
    if not opening:
        if not head or not _is_tag(head[0]):
            return None
        return {"marker": head[0], "head": (*head[1:], NAME), "closing": _joined(SPACE, *tail)}
    if not head or not tags:
        return None
    return {
        "marker": opening[0],
        "opening": _joined(*opening[1:], SPACE),
        "head": (*head, NAME),
        "tail": _joined(SPACE, *_trimmed(tail)) if _trimmed(tail) else (),
        "separator": _joined(SPACE, *rest[len(tail) :], SPACE),
        "closing": _joined(SPACE, *_through_tag(last[len(tail) :])),
    }


def _around_single(before: Elements, after: Elements) -> dict[str, Any] | None:
    """The fields of a form from what is around the only call; None without a tag before it."""
    if not before or not _is_tag(before[0]):
        return None
    return {
        "marker": before[0],
        "head": (*before[1:], NAME),
        "closing": _joined(SPACE, *_through_tag(after)),
    }


def _is_tag(element: Any) -> bool:
    return isinstance(element, str) and re.fullmatch(_TAG, element) is not None


def _through_tag(elements: Elements) -> Elements:
    """The elements up to the first tag; what follows it is not a part of calls."""
    tags = [index for index, element in enumerate(elements) if _is_tag(element)]
    return elements[: tags[0] + 1] if tags else elements


def _elements(text: str, is_json: bool) -> Elements:
    """A text as elements. White space may be missing, and may be around the signs of JSON."""
    found: list[Any] = []
    for part in _ELEMENT.finditer(text):
        kind, written = str(part.lastgroup), part[0]
        if kind == "space":
            found.append(SPACE)
        elif kind == "sign" and is_json:
            found += [SPACE, written, SPACE]
        elif kind in ("id", "number"):
            found.append(ID if kind == "id" else NUMBER)
        elif kind == "tag":
            found.append(written)
        elif found and isinstance(found[-1], _Run):
            found[-1] = _Run(found[-1] + written)
        else:
            found.append(_Run(written))
    return _joined(*found)


def _joined(*elements: Any) -> Elements:
    """Elements without white space after white space."""
    pairs = zip((None, *elements), elements, strict=False)
    return tuple(element for before, element in pairs if not before is element is SPACE)


class _Run(str):
    """Text that is not a tag and can go on."""

    __slots__ = ()


def _shared(first: Elements, second: Elements) -> Elements:
    """The elements with which both begin."""
    pairs = zip(first, second, strict=False)
    return tuple(
        element for element, _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)
    )


def _trimmed(elements: Elements, *, end: bool = True) -> Elements:
    """The elements without white space at the beginning and, unless told otherwise, the end."""
    elements = elements[1:] if elements[:1] == (SPACE,) else elements
    return elements[:-1] if end and elements[-1:] == (SPACE,) else elements
