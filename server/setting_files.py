"""Settings that name files: keys, the chat template and the folders of adapters."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from hearthd.bundle import BadKey, PublicKey, read_public_key
from hearthd.bundle.bundle_home import expanded, similar_path
from hearthd.bundle.lora.read_adapter import adapter_name
from hearthd.bundle.parsing.text_files import read_text, reason
from hearthd.server.setting_types import MIN_KEY_LENGTH
from hearthd.server.settings import BadSettings
from hearthd.text.named_templates import template_source

if TYPE_CHECKING:
    from hearthd.server.settings import Settings


def read_keys(settings: Settings) -> tuple[str, ...]:
    """The API keys of --api-key and --api-key-file; raises BadSettings if the file has none."""
    keys = tuple(key.get_secret_value() for key in settings.api_key)
    if settings.api_key_file is None:
        return keys
    lines = _read("api_key_file", settings.api_key_file).splitlines()
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
        folders[name] = expanded(Path(folder))
    return folders


def require_files(settings: Settings) -> None:
    """Raise BadSettings for a file that is missing or wrong, or a folder that takes no files."""
    read_template(settings)
    read_signing_keys(settings)
    for name, folder in (("cache_dir", settings.cache_dir), ("state_dir", settings.state_dir)):
        if folder is not None:
            _require_writable(name, folder)
    for path in adapter_folders(settings).values():
        if not path.exists():
            raise BadSettings(f"lora: {path} does not exist{similar_path(path)}")


def _require_writable(name: str, folder: Path) -> None:
    """Create a folder, and raise BadSettings if no file can be written there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise BadSettings(
            f"{name}: {folder}: cannot be written: {error.strerror}; choose another folder"
        ) from None


def read_template(settings: Settings) -> str | None:
    """The chat template of --chat-template or --chat-template-file; raises BadSettings."""
    if settings.chat_template_file is not None:
        name, got = "chat_template_file", str(settings.chat_template_file)
        text = _read(name, settings.chat_template_file)
    elif settings.chat_template is not None:
        name, got, text = "chat_template", repr(settings.chat_template), settings.chat_template
    else:
        return None
    try:
        return template_source(text)
    except ValueError as error:
        # Path.is_file would raise for a long text.
        is_file = os.path.isfile(text)  # noqa: PTH113
        hint = f"; for a file: --chat-template-file {text}" if is_file else ""
        raise BadSettings(f"{name}: got {got}, expected {error}{hint}") from None


def _read(name: str, path: Path) -> str:
    """The text of the file that a setting names."""
    try:
        return read_text(path)
    except (OSError, ValueError) as error:
        raise BadSettings(f"{name}: {path} cannot be read: {reason(error)}") from None


def read_signing_keys(settings: Settings) -> tuple[PublicKey, ...]:
    """The public keys of --require-signature; raises BadSettings."""
    try:
        return tuple(map(read_public_key, settings.require_signature))
    except BadKey as error:
        raise BadSettings(f"require_signature: {error}") from None
