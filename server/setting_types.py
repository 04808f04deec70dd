"""The types of settings, and how their values are read."""

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, ByteSize, SecretStr

from hearthd.bundle.parsing.validation import SIZE

MIN_KEY_LENGTH = 8  # characters; shorter keys can be guessed


def _split(value: object) -> object:
    """Split a list in an environment variable at its commas."""
    if isinstance(value, str):
        return [item.strip() for item in value.split(",") if item.strip()]
    return value


def _check_length(key: SecretStr) -> SecretStr:
    if len(key.get_secret_value()) < MIN_KEY_LENGTH:
        raise ValueError(f"at least {MIN_KEY_LENGTH} characters")
    return key


def _reject_booleans(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError(SIZE)
    return value


Size = Annotated[ByteSize, BeforeValidator(_reject_booleans)]
Key = Annotated[SecretStr, AfterValidator(_check_length)]
Keys = Annotated[tuple[Key, ...], BeforeValidator(_split)]
Paths = Annotated[tuple[Path, ...], BeforeValidator(_split)]
Words = Annotated[tuple[str, ...], BeforeValidator(_split)]
