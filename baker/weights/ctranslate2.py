"""Whisper in a folder of CTranslate2, as a `WeightSource` with the names of Hugging Face.

The folder has model.bin, config.json, and a tokenizer. Source of the format: `Model::load` in
src/models/model.cc of CTranslate2, and its converter python/ctranslate2/specs/model_spec.py.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
from typing_extensions import override

from hearthd.baker.weights.safetensors import CONFIG, read_json
from hearthd.baker.weights.source import (
    BadFile,
    NoSuchTensor,
    UnsupportedType,
    WeightSource,
    block_shapes,
    read_array,
    require_unchanged,
    stamp,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from io import RawIOBase
    from pathlib import Path

    from numpy.typing import NDArray

MODEL = "model.bin"
_VERSION = 6
_SPEC = "WhisperSpec"
_MAX_VARIABLES, _MAX_AXES = 1 << 16, 4
_NUMBER = struct.Struct("<I")
# By the number of a type: its name, and its dtype.
_TYPES: Mapping[int, tuple[str, np.dtype[Any]]] = {
    0: ("f32", np.dtype("<f4")),
    1: ("int8", np.dtype("i1")),
    2: ("int16", np.dtype("<i2")),
    3: ("int32", np.dtype("<i4")),
    4: ("f16", np.dtype("<f2")),
    5: ("bf16", np.dtype(ml_dtypes.bfloat16)),
}
_FLOATS = ("f32", "f16", "bf16")
_SCALE = "_scale"
# Modules of a layer, and the modules of Hugging Face's files whose rows each joins, in order.
_LAYER = {
    "self_attention/layer_norm": ("self_attn_layer_norm",),
    "self_attention/linear_0": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "self_attention/linear_1": ("self_attn.out_proj",),
    "attention/layer_norm": ("encoder_attn_layer_norm",),
    "attention/linear_0": ("encoder_attn.q_proj",),
    "attention/linear_1": ("encoder_attn.k_proj", "encoder_attn.v_proj"),
    "attention/linear_2": ("encoder_attn.out_proj",),
    "ffn/layer_norm": ("final_layer_norm",),
    "ffn/linear_0": ("fc1",),
    "ffn/linear_1": ("fc2",),
}
_OTHERS = {
    "conv1": ("conv1",),
    "conv2": ("conv2",),
    "layer_norm": ("layer_norm",),
    "embeddings": ("embed_tokens",),
    "position_encodings": ("embed_positions",),
}
_SUFFIXES = {"gamma": "weight", "beta": "bias", "encodings": "weight"}
_NAME = re.compile(r"(encoder|decoder)/(?:layer_(\d+)/)?(.+)/([^/]+)")
_NO_BIAS = "k_proj.bias"  # zeros: only the matrices that it is joined with have a bias


@dataclass(frozen=True, kw_only=True)
class _Variable:
    """Values in the file: `offset` in bytes."""

    name: str
    shape: tuple[int, ...]
    stored: str
    dtype: np.dtype[Any]
    offset: int


@dataclass(frozen=True, kw_only=True)
class _Tensor:
    """Rows of a variable: part `index` of `count` equal ones."""

    variable: _Variable
    index: int
    count: int

    @property
    def shape(self) -> tuple[int, ...]:
        rows, *rest = self.variable.shape
        return (rows // self.count, *rest)


class CTranslate2Source(WeightSource):
    """The tensors and the configuration of a folder. Raises BadFile or UnsupportedType."""

    format = "safetensors"  # the names of tensors and the keys of `metadata` are Hugging Face's

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path = folder / MODEL
        paths = (self._path, folder / CONFIG)
        self._stamps = {path: stamp(path) for path in paths}
        self._variables = _read_variables(self._path)
        self._tensors = dict(_named_tensors(self._variables))
        self._config = self._shape() | _generation(read_json(folder / CONFIG))

    @property
    @override
    def folder(self) -> Path:
        """The folder."""
        return self._folder

    @override
    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self._tensors))

    @override
    def shape(self, name: str) -> tuple[int, ...]:
        return self._tensor(name).shape

    @override
    def dtype(self, name: str) -> str:
        return self._tensor(name).variable.stored

    @override
    def blocks(self, name: str) -> Iterator[NDArray[np.float32]]:
        tensor = self._tensor(name)
        variable = tensor.variable
        width = int(np.prod(tensor.shape[1:], dtype=np.int64))
        row = tensor.index * tensor.shape[0]
        scales = self._scales(variable)
        with self._path.open("rb", buffering=0) as file:
            for rows, *rest in block_shapes(tensor.shape):
                file.seek(variable.offset + row * width * variable.dtype.itemsize)
                size = rows * width * variable.dtype.itemsize
                data = read_array(file, self._path, size, f"tensor {variable.name}")
                values = data.view(variable.dtype).astype(np.float32).reshape(rows, *rest)
                if scales is not None:
                    part = scales if scales.size == 1 else scales[row : row + rows]
                    values /= part.reshape(-1, *[1] * len(rest))
                yield values
                row += rows

    def _scales(self, variable: _Variable) -> NDArray[np.float32] | None:
        """The divisors of a variable's integers, f32: one, or one per row. None for floats."""
        if variable.stored in _FLOATS:
            return None
        scales = self._variables.get(variable.name + _SCALE)
        if scales is None or scales.stored != "f32" or variable.stored not in ("int8", "int16"):
            raise UnsupportedType(
                f"{self._path}: {variable.name} is {variable.stored} without scales; convert the "
                "model again with --quantization int8 or float16"
            )
        count = int(np.prod(scales.shape, dtype=np.int64))
        if count not in (1, variable.shape[0]):
            raise BadFile(f"{self._path}: {scales.name} has {count} numbers for {variable.shape}")
        with self._path.open("rb", buffering=0) as file:
            file.seek(scales.offset)
            return read_array(file, self._path, 4 * count, scales.name).view("<f4")

    def _tensor(self, name: str) -> _Tensor:
        if name not in self._tensors:
            raise NoSuchTensor(f"{self._path} has no tensor {name}")
        return self._tensors[name]

    @override
    def files(self) -> tuple[Path, ...]:
        return tuple(self._stamps)

    @override
    def require_unchanged(self) -> None:
        require_unchanged(self._stamps)

    @override
    def metadata(self) -> Mapping[str, object]:
        """The keys of Hugging Face's config.json."""
        return self._config

    def _shape(self) -> dict[str, object]:
        def size(name: str, axis: int) -> int:
            return self._tensor(name).shape[axis]

        def layers(side: str) -> int:
            starts = (name.split(".") for name in self._tensors if f".{side}.layers." in name)
            return 1 + max((int(parts[3]) for parts in starts), default=-1)

        config: dict[str, object] = {
            "model_type": "whisper",
            "d_model": size("model.decoder.embed_tokens.weight", 1),
            "vocab_size": size("model.decoder.embed_tokens.weight", 0),
            "num_mel_bins": size("model.encoder.conv1.weight", 1),
            "max_source_positions": size("model.encoder.embed_positions.weight", 0),
            "max_target_positions": size("model.decoder.embed_positions.weight", 0),
        }
        for side in ("encoder", "decoder"):
            config |= {
                f"{side}_layers": layers(side),
                f"{side}_attention_heads": self._integer(f"{side}/num_heads"),
                f"{side}_ffn_dim": size(f"model.{side}.layers.0.fc1.weight", 0),
            }
        return config

    def _integer(self, name: str) -> int:
        variable = self._variables.get(name)
        if variable is None or variable.shape or variable.dtype.kind != "i":
            raise BadFile(f"{self._path}: {name} is missing or not an integer")
        with self._path.open("rb", buffering=0) as file:
            file.seek(variable.offset)
            data = read_array(file, self._path, variable.dtype.itemsize, name)
        return int(data.view(variable.dtype)[0])


def is_ctranslate2(folder: Path) -> bool:
    """Whether a folder has a model of CTranslate2."""
    return (folder / MODEL).is_file() and (folder / CONFIG).is_file()


def _generation(config: Mapping[str, object]) -> dict[str, object]:
    """The tokens that are never sampled and the alignment heads, under Hugging Face's names."""
    names = {"suppress_ids": "suppress_tokens", "alignment_heads": "alignment_heads"}
    return {name: config[key] for key, name in names.items() if config.get(key) is not None}


def _named_tensors(variables: Mapping[str, _Variable]) -> Iterator[tuple[str, _Tensor]]:
    """The tensors of variables, by their names in Hugging Face's files."""
    for name, variable in variables.items():
        match = _NAME.fullmatch(name)
        if match is None or not variable.shape or name.endswith(_SCALE):
            continue
        side, layer, module, suffix = match.groups()
        parts = (_OTHERS if layer is None else _LAYER).get(module)
        if parts is None:
            continue
        prefix = f"model.{side}." + ("" if layer is None else f"layers.{layer}.")
        for index, part in enumerate(parts):
            path = f"{part}.{_SUFFIXES.get(suffix, suffix)}"
            if not path.endswith(_NO_BIAS):
                yield prefix + path, _Tensor(variable=variable, index=index, count=len(parts))


def _read_variables(path: Path) -> dict[str, _Variable]:
    """The variables of a file, whose values are not read."""
    with path.open("rb", buffering=0) as file:
        version = _number(file, path)
        if version != _VERSION:
            raise BadFile(
                f"{path} is not a model of CTranslate2 of format {_VERSION}: it begins with "
                f"{version}; convert the model again with ct2-transformers-converter"
            )
        if (spec := _text(file, path)) != _SPEC:
            raise BadFile(f"{path} holds {spec!r:.80}, expected {_SPEC}")
        _number(file, path)  # the revision of the spec
        count = _number(file, path)
        if count > _MAX_VARIABLES:
            raise BadFile(f"{path} says {count} variables, expected at most {_MAX_VARIABLES}")
        size = path.stat().st_size
        variables = {}
        for _ in range(count):
            variable = _read_variable(file, path, size)
            variables[variable.name] = variable
        return variables


def _read_variable(file: RawIOBase, path: Path, file_size: int) -> _Variable:
    name = _text(file, path)
    (rank,) = read_array(file, path, 1, f"variable {name!r:.80}")
    if rank > _MAX_AXES:
        raise BadFile(f"{path}: {name!r:.80} has {rank} axes, expected at most {_MAX_AXES}")
    shape = tuple(_number(file, path) for _ in range(rank))
    (number,) = read_array(file, path, 1, f"variable {name!r:.80}")
    if number not in _TYPES:
        raise UnsupportedType(f"{path}: {name!r:.80} has the unknown type {number}")
    stored, dtype = _TYPES[int(number)]
    size, offset = _number(file, path), file.tell()
    expected = dtype.itemsize
    for axis in shape:
        expected *= axis
    if size != expected or not expected or offset + size > file_size:
        raise BadFile(f"{path} ends within {name!r:.80}, or is damaged; copy the file again")
    file.seek(size, 1)
    return _Variable(name=name, shape=shape, stored=stored, dtype=dtype, offset=offset)


def _number(file: RawIOBase, path: Path) -> int:
    return int(_NUMBER.unpack(read_array(file, path, _NUMBER.size, "its header").tobytes())[0])


def _text(file: RawIOBase, path: Path) -> str:
    """A string, which ends with a zero byte."""
    length = int.from_bytes(read_array(file, path, 2, "its header").tobytes(), "little")
    data = read_array(file, path, length, "its header").tobytes()
    try:
        return data.rstrip(b"\0").decode()
    except UnicodeDecodeError as error:
        raise BadFile(f"{path} has a name that is not text; copy the file again") from error
