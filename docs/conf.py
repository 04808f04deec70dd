"""Sphinx settings of the documentation site: scripts/docs builds it, without a network."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic import BaseModel

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))  # autodoc imports the packages of this checkout

_project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

project = "Hearth"
author = "The Hearth authors"
version = release = _project["version"]
language = "en"

extensions = ["myst_parser", "sphinx.ext.autodoc"]
exclude_patterns = ["README.md"]
html_theme = "furo"
html_title = f"Hearth {version}"
html_favicon = "../server/web/icon.svg"
html_show_sphinx = False

# The same anchors as on a code host, so that links between pages work in both places.
myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence", "deflist", "substitution"]

# Docstrings write code in single backticks.
default_role = "literal"
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "exclude-members": "__init__"}
highlight_language = "none"
smartquotes = False  # they turn --flag into a dash
python_use_unqualified_type_names = True


def _format_docstring(
    _app: Any, _what: str, _name: str, _object: Any, _options: Any, lines: list[str]
) -> None:
    """Keep the columns of tables and formulas; docstrings are plain text with `code`."""
    formatted: list[str] = []
    for paragraph in "\n".join(lines).split("\n\n"):
        inner = paragraph.strip("\n").split("\n")
        is_list = inner[0].lstrip().startswith("- ")
        has_columns = any(line.startswith(" ") or "  " in line.strip() for line in inner)
        if has_columns and not is_list:
            formatted += ["::", "", *(f"    {line}" for line in inner), ""]
        else:
            formatted += [*(re.sub(r"[*|]", r"\\\g<0>", line) for line in inner), ""]
    lines[:] = formatted


def _settings() -> str:
    """The server's settings."""
    from hearthd.server.settings import SAMPLING_GROUP, Settings

    return _flags(Settings, argument="bundle", group=SAMPLING_GROUP)


def _bake_options() -> str:
    """The options of a bake."""
    from hearthd.baker.pipeline.bake_options import BakeOptions

    return _flags(BakeOptions, argument="model")


def _flags(schema: type[BaseModel], argument: str, group: str | None = None) -> str:
    """A table for each group of a schema's fields. The field `argument` is not a flag.

    `group` has the other fields that name none.
    """
    from hearthd.flag_names import flag
    from hearthd.flags import grouped_fields, metavar

    groups: dict[str, list[str]] = {}
    fields = grouped_fields(schema, group)
    for name, field, section in sorted(fields, key=lambda each: each[0] != argument):
        extra = field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}
        default = "" if field.default in (None, ()) or field.is_required() else f"`{field.default}`"
        typed = argument.upper() if name == argument else flag(name)
        if extra.get("only_off"):
            typed = flag(f"no_{name}")
        if name != argument and field.annotation is not bool:
            typed += f" {metavar(field)}".replace("|", r"\|")
        row = f"| `{typed}` | {default} | {field.description} |"
        title = argument.capitalize() if name == argument or section is None else section
        groups.setdefault(title, ["| Flag | Default | Meaning |", "|---|---|---|"]).append(row)
    return "\n\n".join(f"## {group}\n\n" + "\n".join(rows) for group, rows in groups.items())


def _request_fields() -> str:
    """A table of the fields of POST /generate."""
    from hearthd.server.api.native.generate import GenerateRequest

    rows = ["| Field | Default | Meaning |", "|---|---|---|"]
    for name, field in GenerateRequest.model_fields.items():
        value = field.get_default(call_default_factory=True, validated_data={})
        default = "" if value in (None, {}) or field.is_required() else f"`{value}`"
        rows.append(f"| `{name}` | {default} | {field.description or ''} |")
    return "\n".join(rows)


myst_substitutions = {
    "bake_options": _bake_options(),
    "request_fields": _request_fields(),
    "settings": _settings(),
}


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect("autodoc-process-docstring", _format_docstring)
