"""The chat template of a Hugging Face folder, from the files in which transformers looks for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hearthd.baker.tokenizer.tekken_template import tekken_template
from hearthd.baker.weights.safetensors import ALL_PROCESSORS, read_json
from hearthd.baker.weights.source import TokenizerError, read_text
from hearthd.bundle.parsing.text_files import reason
from hearthd.models.decoder.config.config_json import PROCESSOR

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_JINJA = "chat_template.jinja"
_JSON = "chat_template.json"  # as processors were saved before 2025
TOKENIZER_CONFIG = "tokenizer_config.json"
TEKKEN = "tekken.json"
# The files that can have it.
TEMPLATE_FILES = (_JINJA, _JSON, TOKENIZER_CONFIG, ALL_PROCESSORS)


def folder_template(folder: Path) -> str | None:
    """The chat template (Jinja), or None if no file has one.

    A processor of images or sound prefers other files than a tokenizer, as in transformers. Raises
    TokenizerError or BadFile for a file that cannot be read.
    """
    by_processor = (_in(ALL_PROCESSORS), _in(_JSON))
    by_tokenizer = (_in_jinja, _in(TOKENIZER_CONFIG))
    processed = any((folder / name).is_file() for name in (PROCESSOR, ALL_PROCESSORS))
    order = by_processor + by_tokenizer if processed else by_tokenizer + by_processor
    templates = (read(folder) for read in (*order, _of_tekken))
    return next((template for template in templates if template is not None), None)


def _in_jinja(folder: Path) -> str | None:
    path = folder / _JINJA
    try:
        return read_text(path) if path.exists() else None
    except (OSError, ValueError) as error:
        raise TokenizerError(f"cannot read {path}: {reason(error)}") from error


def _in(name: str) -> Callable[[Path], str | None]:
    """A reader of the key `chat_template` in a JSON file of the folder."""

    def read(folder: Path) -> str | None:
        template: Any = read_optional(folder / name).get("chat_template")
        # Some models have several templates, by name.
        if isinstance(template, list):
            named = [entry for entry in template if isinstance(entry, dict)]
            default = (entry for entry in named if entry.get("name") == "default")
            template = next(default, {}).get("template")
        return template if isinstance(template, str) else None

    return read


def _of_tekken(folder: Path) -> str | None:
    return tekken_template(read_optional(folder / TEKKEN))


def read_optional(path: Path) -> dict[str, Any]:
    """The object in a JSON file, empty if the file does not exist; raises BadFile."""
    return read_json(path) if path.exists() else {}
