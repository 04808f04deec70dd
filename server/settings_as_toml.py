"""The effective settings of a server as TOML, which `hearth serve --print-config` prints."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from hearthd.server.settings import LoadedSettings, Settings, is_secret
from hearthd.text.text_request import SAMPLING_FIELDS

if TYPE_CHECKING:
    from collections.abc import Iterator


def as_toml(loaded: LoadedSettings) -> str:
    """The effective settings as TOML: one per line with its source, secrets hidden."""
    return "".join(f"{line}\n" for line in _lines(loaded))


def _lines(loaded: LoadedSettings) -> Iterator[str]:
    for name in Settings.model_fields:
        value = getattr(loaded.settings, name)
        origin = loaded.origins.get(name, "default")
        if name == "config":
            continue
        if is_secret(name):
            yield f"# {name}: {len(value)} hidden  # {origin}"
        elif value is None or (name in SAMPLING_FIELDS and name not in loaded.origins):
            yield f"# {name} is not set  # {origin}"
        else:
            # JSON of a number, string or list is valid TOML.
            text = json.dumps(value, ensure_ascii=False, default=str)
            yield f"{name} = {text}  # {origin}"
