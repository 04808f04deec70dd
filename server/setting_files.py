"""Settings that name files: keys, the chat template and the folders of adapters."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from hearthd.bundle import BadKey, PublicKey, read_public_key
from hearthd.bundle.lora.read_adapter import adapter_name
from hearthd.bundle.parsing.text_files import read_text
from hearthd.server.setting_types import MIN_KEY_LENGTH
from hearthd.server.settings import BadSettings
from hearthd.text.named_templates import NAMED_TEMPLATES

if TYPE_CHECKING:
    from hearthd.server.settings import Settings


def read_keys(settings: Settings) -> tuple[str, ...]:
    """The API keys of --api-key and --api-key-file; raises BadSettings if the file has none."""
    keys = tuple(key.get_secret_value() for key in settings.api_key)
    if settings.api_key_file is None:
        return keys
    try:
        lines = read_text(settings.api_key_file).splitlines()
    except (OSError, ValueError) as error:
        raise BadSettings(
            f"api_key_file: {settings.api_key_file} cannot be read: {error}"
        ) from None
    keys_in_file = tuple(line.strip() for line in lines if line.strip())
    if not keys_in_file or min(map(len, keys_in_file)) < MIN_KEY_LENGTH:
        raise BadSettings(
            f"api_key_file: {settings.api_key_file} must contain API keys of at least "
            f"{MIN_KEY_LENGTH} characters, one per line"
        )
    return keys + keys_in_file


def adapter_folders(settings: Settings) -> dict[str, Path]:
    """The folders and files of --lora by the names of the adapters; raises BadSettings."""
    folders: dict[str, Path] = {}
    for value in settings.lora:
        folder, _, name = value.partition("=")
        name = name or adapter_name(Path(folder).resolve())
        if name in folders or not folder:
            problem = "is there twice; use PATH=NAME" if folder else "has no path"
            raise BadSettings(f"lora: the adapter {name!r} {problem}")
        folders[name] = Path(folder)
    return folders


def read_template(settings: Settings) -> str | None:
    """The chat template of --chat-template or --chat-template-file; raises BadSettings."""
    path, given = settings.chat_template_file, settings.chat_template
    if path is None:
        return given and NAMED_TEMPLATES.get(given, given)
    try:
        template = read_text(path)
    except (OSError, ValueError) as error:
        raise BadSettings(f"chat_template_file: {path} cannot be read: {error}") from None
    if not template.strip():
        raise BadSettings(f"chat_template_file: {path} is empty, expected a template")
    return template


def read_signing_keys(settings: Settings) -> tuple[PublicKey, ...]:
    """The public keys of --require-signature; raises BadSettings."""
    try:
        return tuple(map(read_public_key, settings.require_signature))
    except BadKey as error:
        raise BadSettings(f"require_signature: {error}") from None
