"""The rules that a request gives for its answer: JSON, a schema, a regex, a grammar, a choice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["json_object", "json_schema", "regex", "lark", "choice"]


@dataclass(frozen=True)
class Grammar:
    """`value` is the text of a schema (as JSON), regex or Lark grammar, or the choices as JSON.

    json_object has none: "".
    """

    kind: Kind
    value: str = ""
