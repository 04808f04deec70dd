"""Safetensors as a `WeightSource`: a file alone, or a Hugging Face folder.

A folder has config.json and either `model.safetensors`, or `model.safetensors.index.json` and the
files that it names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import ml_dtypes  # noqa: F401  (registers bfloat16 with NumPy, which safetensors then returns)
import numpy as np
from safetensors import SafetensorError, safe_open

from baker.weights.source import (
    MOST_AXES,
    BadFile,
    NoSuchTensor,
    NoWeights,
    UnsupportedType,
    WeightSource,
    block_shapes,
    is_file,
    read_text,
)
from models import strict_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

CONFIG = "config.json"
SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
_TYPES = {"F32": "f32", "F16": "f16", "BF16": "bf16"}


class _Safetensors(WeightSource):
    """The tensors of the files that have been added, at `place`."""

    def __init__(self, place: Path) -> None:
        self._place = place
        # Tensor name -> the file that holds it, its shape and its stored type.
        self._tensors: dict[str, tuple[Path, tuple[int, ...], str]] = {}

    @property
    def format(self) -> Literal["safetensors"]:
        """Always "safetensors"."""
        return "safetensors"

    def names(self) -> tuple[str, ...]:
        """The tensors' names, in alphabetical order."""
        return tuple(sorted(self._tensors))

    def shape(self, name: str) -> tuple[int, ...]:
        """The tensor's shape."""
        return self._tensor(name)[1]

    def dtype(self, name: str) -> str:
        """The stored type: "f32", "f16", "bf16", or safetensors' own name for another."""
        stored = self._tensor(name)[2]
        return _TYPES.get(stored, stored)

    def blocks(self, name: str) -> Iterator[NDArray[np.float32]]:
        """The tensor's values; only f32, f16 and bf16 are read."""
        path, shape, stored = self._tensor(name)
        if stored not in _TYPES:
            raise UnsupportedType(
                f"{path}: tensor {name} is {stored}, wanted one of {', '.join(_TYPES)}"
            )
        with safe_open(path, framework="numpy") as file:
            if len(shape) < 2:
                yield file.get_tensor(name).astype(np.float32, copy=False)
                return
            rows = file.get_slice(name)
            start = 0
            for block in block_shapes(shape):
                yield rows[start : start + block[0]].astype(np.float32, copy=False)
                start += block[0]

    def _tensor(self, name: str) -> tuple[Path, tuple[int, ...], str]:
        if name not in self._tensors:
            raise NoSuchTensor(f"{self._place} holds no tensor {name!r}")
        return self._tensors[name]

    def _add(self, path: Path) -> None:
        try:
            with safe_open(path, framework="numpy") as file:
                for name in file.keys():  # noqa: SIM118  (not a dict)
                    if name in self._tensors:
                        raise BadFile(f"{path} has tensor {name}, as {self._tensors[name][0]} has")
                    rows = file.get_slice(name)
                    shape = tuple(rows.get_shape())
                    if 0 in shape or len(shape) > MOST_AXES:
                        raise BadFile(
                            f"{path}: tensor {name} has shape {shape!r:.80}, wanted no empty axis "
                            f"and at most {MOST_AXES}"
                        )
                    self._tensors[name] = (path, shape, rows.get_dtype())
        except (SafetensorError, OSError) as error:
            raise BadFile(f"{path} is not a whole safetensors file: {error}") from error


class SafetensorsFile(_Safetensors):
    """The tensors of one file, which says nothing else. Raises NoWeights or BadFile."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        if not path.is_file():
            raise NoWeights(f"{path} is no file: pass a safetensors file")
        self._add(path)

    def files(self) -> tuple[Path, ...]:
        """The file."""
        return (self._place,)

    def metadata(self) -> Mapping[str, object]:
        """Nothing."""
        return {}


class SafetensorsSource(_Safetensors):
    """The tensors and config of a folder. Raises NoWeights or BadFile when they are not whole."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.folder = folder
        self._config = read_json(folder / CONFIG)
        if (folder / INDEX).exists():
            self._add_indexed()
        elif (folder / SINGLE).exists():
            self._add(folder / SINGLE)
        else:
            raise NoWeights(f"{folder} has neither {SINGLE} nor {INDEX}")

    def files(self) -> tuple[Path, ...]:
        """config.json, the index when there is one, and the safetensors files."""
        index = self.folder / INDEX
        shards = sorted({path for path, _, _ in self._tensors.values()})
        return (self.folder / CONFIG, *([index] if index.exists() else []), *shards)

    def metadata(self) -> Mapping[str, object]:
        """The parsed config.json."""
        return self._config

    def _add_indexed(self) -> None:
        index = self.folder / INDEX
        shard_of = read_json(index).get("weight_map")
        if not isinstance(shard_of, dict) or not all(isinstance(f, str) for f in shard_of.values()):
            raise BadFile(f"{index} has no weight_map from tensors to files")
        for shard in sorted(set(shard_of.values())):
            path = self.folder / shard
            if path.parent != self.folder or not is_file(path):
                raise BadFile(f"{index} names {shard!r}, which is not in {self.folder}")
            self._add(path)
        for name, shard in shard_of.items():
            if name not in self._tensors or self._tensors[name][0].name != shard:
                raise BadFile(f"{index} puts tensor {name} into {shard}, which does not hold it")


def read_json(path: Path) -> dict[str, Any]:
    """A JSON file that holds an object; raises BadFile when it is missing or is not one."""
    try:
        data = strict_json.parse(read_text(path))
    except (OSError, ValueError) as error:
        raise BadFile(f"cannot read {path}: {error}") from error
    if not isinstance(data, dict):
        raise BadFile(f"{path} holds {type(data).__name__}, wanted a JSON object")
    return data
