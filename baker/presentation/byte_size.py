"""Sizes as arguments of commands."""

from __future__ import annotations

import typer
from pydantic import ByteSize, TypeAdapter, ValidationError


def byte_size(text: str) -> int:
    """A size as `hearth serve` takes it: a number of bytes, or a number with a unit."""
    try:
        return TypeAdapter(ByteSize).validate_python(text)
    except ValidationError:
        raise typer.BadParameter(f"{text!r} is not a size, such as 400M or 1GiB.") from None
