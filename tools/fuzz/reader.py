"""A reader to fuzz: its valid files, how to damage them, and the errors that it may raise.

Every other exception is a defect, and so are a long run time or much memory for a file of a few
thousand bytes.
"""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from random import Random

Files: TypeAlias = "Mapping[str, bytes]"
Damage: TypeAlias = "Callable[[bytes, Random], bytes]"


@dataclass(frozen=True, kw_only=True)
class Reader:
    """A reader of files.

    files     valid ones, by name
    damage    what is done to which of them: to one at a time
    read      reads them all, in a folder
    refusals  what it says of files that it does not take
    """

    name: str
    files: Callable[[], Files]
    damage: Mapping[str, Damage]
    read: Callable[[Path], object]
    refusals: tuple[type[Exception], ...]


def group_of(reader: Reader) -> str:
    """The group that a reader is fuzzed in: the first part of its name."""
    return reader.name.partition("-")[0].partition("/")[0]


def attempt(reader: Reader, random: Random) -> bool:
    """Whether a reader accepts files, one of them damaged. Raises unexpected errors."""
    victim = random.choice(sorted(reader.damage))
    files = dict(reader.files())
    files[victim] = reader.damage[victim](files[victim], random)
    return read(reader, files)


def read(reader: Reader, files: Files) -> bool:
    """Whether a reader accepts files. Raises unexpected errors."""
    with tempfile.TemporaryDirectory() as name:
        for file, data in files.items():
            path = Path(name, file)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        try:
            reader.read(Path(name))
        except reader.refusals:
            return False
    return True


def written(write: Callable[[Path], object]) -> bytes:
    """The bytes of the file that a function writes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file"
        write(path)
        return path.read_bytes()


def in_json(value: object) -> bytes:
    """A value as a JSON file."""
    return json.dumps(value).encode()
