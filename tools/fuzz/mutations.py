"""Damage bytes, JSON values and template text, reproducibly from a random generator."""

from __future__ import annotations

import copy
import json
import struct
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from random import Random

_INTEGERS = (
    0, 1, 2, 3, 64, 65, 127, 255, 65535, 10**6, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**61,
    2**63 - 1, 2**63, 2**64 - 1,
)  # fmt: skip
# JSON that Python's `json` does not write, by the word that stands for it until the text is made.
_RAW = {
    "@huge": "1" + "0" * 400,
    "@digits": "9" * 5000,
    "@infinite": "1e999",
    "@nan": "NaN",
    "@minus": "-Infinity",
    "@deep": "[" * 50_000 + "]" * 50_000,
    "@deeper": '{"a":' * 50_000 + "1" + "}" * 50_000,
    "@surrogate": '"\\ud800"',
}
_VALUES: tuple[Any, ...] = (
    *_RAW, None, True, False, -1, 0, 1, 3, 2**31, 2**63, 2**64, 1.5, -0.0, 1e308, "", " ", "a",
    "1", "../../etc/passwd", "/etc/passwd", "..", "a\0b", "\x1b[2J", "x" * 5000, "é" * 300, [], {},
    [[]], [None], [1.5], ["a", "a"], {"": 0}, {"content": 3}, {"a": {"a": {}}},
)  # fmt: skip

_TOML = (
    "nan", "inf", "-inf", "1e999", "-1", "0", "true", '""', '"\\u0000"', "9" * 5000, "[]", "{}",
    "[" * 3000 + "]" * 3000, "{a = " * 3000 + "1" + "}" * 3000, "1979-05-27", "[1, 'a', nan]",
    '"1e400 GiB"', f'"{"9" * 400}.0GB"', '"0.5"', '"512MiB"', '"../../etc/passwd"', "2" * 25,
)  # fmt: skip


def damaged_bytes(data: bytes, random: Random) -> bytes:
    """Data with one to four changes: bits, numbers, lengths."""
    damaged = bytearray(data)
    for _ in range(random.randint(1, 4)):
        at = random.randint(0, len(damaged))
        match random.randrange(7):
            case 0 if at < len(damaged):
                damaged[at] ^= 1 << random.randrange(8)
            case 1:
                damaged[at : at + 1] = bytes([random.choice((0, 1, 9, 0x22, 0x5C, 0x80, 0xFF))])
            case 2 | 3:
                form = random.choice("BHIQ")
                size = struct.calcsize("<" + form)
                number = random.choice((*_INTEGERS, len(damaged), len(damaged) - at))
                damaged[at : at + size] = struct.pack("<" + form, number % (1 << 8 * size))
            case 4:
                del damaged[at:]
            case 5:
                del damaged[at : at + random.randint(1, 16)]
            case _:
                start = random.randint(0, len(damaged))
                damaged[at:at] = damaged[start : start + random.randint(1, 64)]
    return bytes(damaged)


def damaged_value(value: Any, random: Random) -> Any:
    """A JSON value, some of whose parts are others, gone, or in other places."""
    damaged = copy.deepcopy(value)
    for _ in range(random.randint(1, 3)):
        places = list(_places(damaged)) if isinstance(damaged, dict | list) else []
        if not places:
            return random.choice(_VALUES)
        holder, key = random.choice(places)
        match random.randrange(6):
            case 0:
                del holder[key]
            case 1 if isinstance(holder, dict):
                holder[random.choice(("unknown", "", "../a", "rope_scaling"))] = holder[key]
            case 2:
                other, other_key = random.choice(places)
                holder[key] = copy.deepcopy(other[other_key])
            case _:
                holder[key] = copy.deepcopy(random.choice(_VALUES))
    return damaged


def damaged_json(data: bytes, random: Random) -> bytes:
    """A JSON text with a value, a key or a byte that is another."""
    if random.randrange(4) == 0:
        return damaged_bytes(data, random)
    text = json.dumps(damaged_value(json.loads(data), random), ensure_ascii=False)
    for word, raw in _RAW.items():
        text = text.replace(json.dumps(word), raw)
    if random.randrange(8) == 0 and text.startswith("{") and len(text) > 2:  # every key twice
        text = text[:-1] + "," + text[1:]
    return text.encode(errors="surrogatepass")


def damaged_toml(data: bytes, random: Random) -> bytes:
    """A TOML text with a value that is another, or with other damage."""
    if random.randrange(3) == 0:
        return damaged_bytes(data, random)
    lines = data.decode().splitlines()
    at = random.randrange(len(lines))
    lines[at] = f"{lines[at].partition(' = ')[0]} = {random.choice(_TOML)}"
    return "\n".join(lines).encode()


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every place in a value: what holds it, and the key or index there."""
    keys = value.keys() if isinstance(value, dict) else range(len(value))
    for key in list(keys):
        yield value, key
        if isinstance(value[key], dict | list):
            yield from _places(value[key])


# --- templates

_EXPRESSIONS = (
    "messages", "messages[0].content", "n.x", "'ab' * 9999999", "range(99999)", "[n.x, n.x]",
    "{'a': n.x}", "10 ** 9", "n.x + n.x", "n.x ~ n.x", "n.x * n.x", "n.x ** n.x", "'%99d' % n.x",
    "n.x|join(n.x)", "n.x|replace('a', n.x)", "n.x|tojson(indent=9)", "n.x|indent(99)", "n.x|list",
    "n.x|string", "n.x|map('string')|list", "n.x|batch(99)|list", "n.x|round(99)", "n.x|sum",
    "n.x.replace('a', n.x)", "n.x.join(n.x)", "n.x.split('a')", "n.x.format(n.x)", "n.x.__class__",
    "n.x|attr('__init__')", "m(n.x)", "cycler(n.x).next()", "dict(a=n.x)", "n.x|escape",
    "n.x[::-1]", "n.x == n.x", "loop.index", "n", "self", "n.x|sort|unique|list",
    "n.x|title", "raise_exception(n.x)", "strftime_now(n.x)", "n.x|groupby('a')|list", "-n.x",
)  # fmt: skip


def hostile_template(random: Random) -> str:
    """A template that computes with its own results, in loops and macros."""
    start = random.choice(("'a'", "[1]", "2", "messages", "{'a': 1}", "'abcdefgh' * 1000000"))
    body = _statements(random, 0)
    return f"{{% set n = namespace(x={start}) %}}{{% macro m(a) %}}{body}{{% endmacro %}}{body}"


def _statements(random: Random, depth: int) -> str:
    return "".join(_statement(random, depth) for _ in range(random.randint(1, 3)))


def _statement(random: Random, depth: int) -> str:
    value = random.choice(_EXPRESSIONS)
    choice = random.randrange(6 if depth < 4 else 2)
    inner = _statements(random, depth + 1) if choice >= 2 else ""
    forms = (
        f"{{% set n.x = {value} %}}",
        f"{{{{ {value} }}}}",
        f"{{% for i in range(99999) %}}{inner}{{% endfor %}}",
        f"{{% for i in {value} if n.x %}}{inner}{{% endfor %}}",
        f"{{% set x %}}{inner}{{% endset %}}",
        f"{{% if {value} %}}{inner}{{% endif %}}",
    )
    return forms[choice]
