"""Inputs of the fuzzer with coverage: a reader, one of its files, and the bytes of the file.

libFuzzer knows only bytes: the first byte is the index of a file among the files of a group's
readers. In this project an input is a line of tools/fuzz/corpus/GROUP.jsonl, with names.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import zlib
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from tools.fuzz.guided.coverage import KERNELS
from tools.fuzz.reader import Reader, group_of, read
from tools.fuzz.readers import READERS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CORPUS = Path(__file__).parents[1] / "corpus"
_MAX_BYTES = 6_000  # of a group in the project
_MAX_CALLS = 120  # of kernels


@dataclass(frozen=True)
class Victim:
    """A file of a reader."""

    reader: Reader
    file: str

    def read(self, data: bytes) -> bool:
        """Whether the reader accepts the file with these bytes. Raises unexpected errors."""
        return read(self.reader, {**self.reader.files(), self.file: data})

    @property
    def valid(self) -> bytes:
        """The bytes of a valid file."""
        return self.reader.files()[self.file]


@functools.cache
def groups() -> dict[str, list[Victim]]:
    """The files of each group's readers."""
    found: dict[str, list[Victim]] = {}
    for reader in READERS.values():
        add(reader, found)
    return found


def add(reader: Reader, to: dict[str, list[Victim]]) -> None:
    """Add a reader to its group."""
    victims = [Victim(reader, file) for file in sorted(reader.damage)]
    to.setdefault(group_of(reader), []).extend(victims)


def victim_of(group: str, data: bytes) -> tuple[Victim, bytes]:
    """What an input of libFuzzer means."""
    victims = groups()[group]
    return victims[data[0] % len(victims) if data else 0], data[1:]


def mutated(group: str, data: bytes, seed: int, mutate: Callable[[bytes], bytes]) -> bytes:
    """A new input: damaged as the file's format suggests, or by libFuzzer's own `mutate`."""
    random = Random(seed)
    victim, content = victim_of(group, data)
    first = data[:1] or b"\0"
    if random.randrange(50) == 0:
        first = bytes([random.randrange(len(groups()[group]))])
        victim, _ = victim_of(group, first)
        content = victim.valid
    if random.randrange(2):
        return first + mutate(content)
    try:
        return first + victim.reader.damage[victim.file](content, random)
    except (ValueError, RecursionError):  # the content is not of the file's format
        return first + mutate(content)


def seeds(group: str) -> Iterator[bytes]:
    """The first inputs of a run: every valid file, and the project's corpus."""
    for index, victim in enumerate(groups()[group]):
        yield bytes([index]) + victim.valid
    for victim, data in corpus(group):
        yield bytes([groups()[group].index(victim)]) + data


def corpus(group: str) -> list[tuple[Victim, bytes]]:
    """The inputs of the project."""
    path = CORPUS / f"{group}.jsonl"
    lines = path.read_text("ascii").splitlines() if path.exists() else []
    return [_parsed(group, json.loads(line)) for line in lines]


def _parsed(group: str, line: dict[str, str]) -> tuple[Victim, bytes]:
    (victim,) = (
        victim
        for victim in groups()[group]
        if (victim.reader.name, victim.file) == (line["reader"], line["file"])
    )
    return victim, zlib.decompress(base64.b85decode(line["data"]))


def write_corpus(group: str, keep: Path) -> int:
    """Write the smallest inputs that libFuzzer has kept to the project; how many."""
    known = [victim.valid for victim in groups()[group]]
    inputs = [path.read_bytes() for path in sorted((keep / group).glob("*"))]
    return written(group, [data for data in inputs if data[1:] not in known], _MAX_BYTES)


def write_calls(keep: Path) -> int:
    """Write the smallest calls of kernels that libFuzzer has kept to the project; how many."""
    calls = sorted((path.read_bytes()[1:] for path in (keep / KERNELS).glob("*")), key=len)
    lines = [f"{call.hex()}\n" for call in calls[:_MAX_CALLS]]
    kept_calls().write_text("".join(lines), "ascii")
    return len(lines)


def kept_calls() -> Path:
    """The file of calls of kernels, one a line."""
    return CORPUS / "kernels.txt"


def written(group: str, inputs: list[bytes], limit: int) -> int:
    """Write the smallest inputs to the project, at most `limit` bytes of them; how many."""
    lines: dict[str, None] = {}
    size = 0
    for data in sorted(inputs, key=len):
        victim, content = victim_of(group, data)
        text = base64.b85encode(zlib.compress(content, 9)).decode()
        line = json.dumps({"reader": victim.reader.name, "file": victim.file, "data": text})
        size += len(line) + 1
        if size > limit:
            break
        lines[line] = None
    if not lines:
        return 0
    CORPUS.mkdir(exist_ok=True)
    (CORPUS / f"{group}.jsonl").write_text("".join(f"{line}\n" for line in lines), "ascii")
    return len(lines)


def name_of(data: bytes) -> str:
    """The name of an input's file in a corpus of libFuzzer."""
    return hashlib.sha1(data).hexdigest()
