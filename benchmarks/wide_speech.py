"""Write Whisper tiny in the shape of Whisper small, with the same answers, in CTranslate2's form.

    python -m benchmarks.wide_speech whisper-tiny.en/ whisper-small-shape/
    hearth bake whisper-small-shape/ --out whisper-small-shape-int8-g32

Weights of Whisper small are a large download, and an answer of random weights ends anywhere. Small
has rows of 768 values where tiny has 384, 12 heads where it has 6, and 12 layers where it has 4. So
each value of a row is there twice, which changes no norm. Each weight of a matrix is halved, and is
there four times. Layers 5 to 12 are copies of the first four that add zero. Logits would be twice
as large, so the last norm is halved. Only weights of f16 or f32 can be written in this way.
"""

from __future__ import annotations

import argparse
import re
import shutil
import struct
from pathlib import Path
from typing import IO

import numpy as np

from benchmarks.inputs import existing_path

_MODEL = "model.bin"
_VERSION = 6
_DTYPES = {0: "<f4", 1: "i1", 2: "<i2", 3: "<i4", 4: "<f2"}
_LAYERS = 12
_LAYER = re.compile(r"((?:en|de)coder/layer_)(\d+)(/.+)")
# Modules whose rows several matrices share, and how many.
_JOINED = {"self_attention/linear_0": 3, "attention/linear_1": 2}
# The last module of each sublayer, whose result is added to the residual stream.
_RESULTS = ("self_attention/linear_1", "attention/linear_2", "ffn/linear_1")
Variables = dict[str, np.ndarray]


def twice(name: str, values: np.ndarray) -> np.ndarray:
    """A variable for rows in which each value is there twice."""
    if not values.shape:
        return values * 2 if name.endswith("/num_heads") else values
    if values.ndim == 1 or name.endswith(("/embeddings/weight", "/encodings")):
        wide = _rows_twice(name, values) if values.ndim == 1 else np.tile(values, (1, 2))
        return wide / 2 if name.startswith("decoder/layer_norm/") else wide
    wide = _rows_twice(name, values)
    if name == "encoder/conv1/weight":  # it reads the sound, which stays as wide
        return wide
    return np.concatenate([wide, wide], axis=1) / 2


def _rows_twice(name: str, values: np.ndarray) -> np.ndarray:
    match = _LAYER.fullmatch(name)
    module = match[3][1:].rpartition("/")[0] if match else ""
    parts = np.split(values, _JOINED.get(module, 1))
    return np.concatenate([part for part in parts for _ in range(2)])


def widened(variables: Variables) -> Variables:
    """The variables of the larger model."""
    if any(values.ndim and values.dtype.kind != "f" for values in variables.values()):
        raise SystemExit("the model has weights of integers; give one of f16 or f32")
    wide = {name: twice(name, values).astype(values.dtype) for name, values in variables.items()}
    found = [match for match in map(_LAYER.fullmatch, variables) if match]
    layers = 1 + max(int(match[2]) for match in found)
    for match in found:
        prefix, layer, rest = match[1], int(match[2]), match[3]
        silent = rest[1:].rpartition("/")[0] in _RESULTS
        for copy in range(layer + layers, _LAYERS, layers):
            values = wide[match[0]]
            wide[f"{prefix}{copy}{rest}"] = np.zeros_like(values) if silent else values
    return wide


def read_model(path: Path) -> tuple[bytes, Variables, bytes]:
    """What precedes the variables, the variables, and what follows them."""
    with path.open("rb") as file:
        version, spec, revision = _number(file), _text(file), _number(file)
        if version != _VERSION:
            raise SystemExit(f"{path}: not a model of CTranslate2 of format {_VERSION}")
        head = struct.pack("<I", version) + _packed(spec) + struct.pack("<I", revision)
        variables = {}
        for _ in range(_number(file)):
            name = _text(file)
            shape = tuple(_number(file) for _ in range(file.read(1)[0]))
            dtype = np.dtype(_DTYPES[file.read(1)[0]])
            variables[name] = np.frombuffer(file.read(_number(file)), dtype).reshape(shape)
        return head, variables, file.read()


def write_model(path: Path, head: bytes, variables: Variables, tail: bytes) -> None:
    """Write a model; `head` and `tail` are those that `read_model` returned."""
    numbers = {np.dtype(dtype): number for number, dtype in _DTYPES.items()}
    with path.open("wb") as file:
        file.write(head + struct.pack("<I", len(variables)))
        for name, values in variables.items():
            sizes = struct.pack(f"<B{values.ndim}I", values.ndim, *values.shape)
            kind = struct.pack("<BI", numbers[values.dtype], values.nbytes)
            file.write(_packed(name) + sizes + kind + values.tobytes())
        file.write(tail)


def _number(file: IO[bytes]) -> int:
    return int.from_bytes(file.read(4), "little")


def _text(file: IO[bytes]) -> str:
    return file.read(int.from_bytes(file.read(2), "little")).rstrip(b"\0").decode()


def _packed(text: str) -> bytes:
    data = text.encode() + b"\0"
    return struct.pack("<H", len(data)) + data


def main() -> None:
    """Parse the command line and write the folder."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "source", type=existing_path, help="folder of Whisper tiny in CTranslate2's form"
    )
    parser.add_argument("out", type=Path, help="folder to write")
    options = parser.parse_args()
    shutil.copytree(options.source, options.out, ignore=shutil.ignore_patterns(_MODEL))
    head, variables, tail = read_model(options.source / _MODEL)
    write_model(options.out / _MODEL, head, widened(variables), tail)


if __name__ == "__main__":
    main()
