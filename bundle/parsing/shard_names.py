"""The shard and the quantization in the name of a GGUF file: NAME-Q4_0-00001-of-00003.gguf."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_SHARD = re.compile(r"(.+)-(\d{5})-of-(\d{5})(\.gguf)", re.ASCII | re.DOTALL | re.IGNORECASE)

_QUANT = re.compile(r"(?<![A-Za-z0-9])((?:UD-)?I?Q\d\w*|BF16|F16|F32)(?=[.-])", re.IGNORECASE)


@dataclass(frozen=True)
class ShardName:
    """The name of a shard.

    model   the beginning, which all shards have
    number  from 1 to `count`
    suffix  `.gguf`, in upper or lower case
    """

    model: str
    number: int
    count: int
    suffix: str

    def all_shards(self) -> tuple[str, ...]:
        """The names of all shards, in order."""
        return tuple(
            f"{self.model}-{number:05}-of-{self.count:05}{self.suffix}"
            for number in range(1, self.count + 1)
        )


def shard_name(name: str) -> ShardName | None:
    """The parts of the name or path of a shard; None for a file that is not split."""
    if (match := _SHARD.fullmatch(name)) is None:
        return None
    shard = ShardName(match[1], int(match[2]), int(match[3]), match[4])
    return shard if 1 <= shard.number <= shard.count and shard.count > 1 else None


def shard_paths(path: Path) -> tuple[Path, ...]:
    """The paths of all shards of a split file, for the path of any of them; else the path alone."""
    shard = shard_name(path.name)
    return (path,) if shard is None else tuple(map(path.with_name, shard.all_shards()))


def quantization_in(name: str) -> str | None:
    """The quantization in the name of a GGUF file, such as Q4_K_M, if it has one."""
    found: list[str] = _QUANT.findall(name)
    return found[-1] if found else None
