"""Write a preset as the lines of a Modelfile."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from hearthd.bundle.manifests.preset import Preset

_QUOTES = '"""'


def parameter_lines(
    options: Mapping[str, Any], quoted: Callable[[str], str] = json.dumps
) -> Iterator[str]:
    """The name and the value of each option, one value a line, with texts in quotes."""
    for name, value in options.items():
        for item in value if isinstance(value, list | tuple) else [value]:
            yield f"{name} {quoted(item) if isinstance(item, str) else item}"


def modelfile(base: str, preset: Preset) -> str:
    """A Modelfile that sets a preset for the model `base`."""
    lines = [f"FROM {base}"]
    options = {**preset.sampling, **preset.limits}
    lines += [f"PARAMETER {line}" for line in parameter_lines(options, _quoted)]
    lines += [f"SYSTEM {_quoted(preset.system)}"] if preset.system else []
    lines += [f"MESSAGE {message.role} {_quoted(message.content)}" for message in preset.messages]
    lines += [f"LICENSE {_quoted(preset.license)}"] if preset.license else []
    return "".join(f"{line}\n" for line in lines)


def _quoted(text: str) -> str:
    """A text in the quotes of a Modelfile, which has no escapes."""
    quotes = _QUOTES if "\n" in text else '"'
    return f"{quotes}{text}{quotes}"
