"""Safetensors as a `WeightSource`: a single file, or a Hugging Face folder.

A folder has config.json and either `model.safetensors`, or `model.safetensors.index.json` and the
files that it names. One that sentence-transformers saved also has folders of further modules, such
as `2_Dense`; the names of their tensors and the keys of their configurations begin with the
folder's name.

The library checks the header of a file. The values are read here: the library maps files, and a
read error of a mapping would end the process with a signal.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
from safetensors import SafetensorError, safe_open
from typing_extensions import override

from hearthd.baker.weights.source import (
    BadFile,
    NoSuchTensor,
    NoWeights,
    UnsupportedType,
    WeightSource,
    block_shapes,
    read_array,
    read_text,
    require_unchanged,
    stamp,
)
from hearthd.bundle.instead_of_weights import other_weights
from hearthd.bundle.parsing import strict_json
from hearthd.bundle.parsing.file_formats import HEAD_BYTES, other_format
from hearthd.bundle.parsing.text_files import reason
from hearthd.models.decoder.config.config_json import (
    FEATURE_EXTRACTOR,
    LOGIT_SCORE,
    MODELOPT,
    POOLING,
    PROCESSOR,
    QUANTIZED,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from hearthd.baker.weights.source import Stamp

# Maximum axes of a tensor: known weights have at most four, and NumPy supports 64.
_MAX_AXES = 8
CONFIG = "config.json"
SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
_TYPES = {"F32": "f32", "F16": "f16", "BF16": "bf16"}
_NUMPY_TYPES: Mapping[str, np.dtype[Any]] = {
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "F8_E4M3": np.dtype(ml_dtypes.float8_e4m3fn),
    "I64": np.dtype("<i8"),
    "I32": np.dtype("<i4"),
    "I8": np.dtype("i1"),
    "U32": np.dtype("<u4"),
    "U8": np.dtype("u1"),
}
_MODE = "pooling_mode_"
_DENSE = "*_Dense"
ALL_PROCESSORS = "processor_config.json"
# Settings of an extractor of features of sound.
_OF_SOUND = (
    "chunk_length", "dither", "feature_extractor_type", "feature_size", "hop_length", "mel_filters",
    "n_fft", "n_samples", "nb_max_frames", "padding_side", "padding_value", "return_attention_mask",
    "sampling_rate",
)  # fmt: skip
_LENGTH_BYTES = 8  # of the length in front of the header


@dataclass(frozen=True, kw_only=True)
class _Tensor:
    """The location of a tensor: `offset` in bytes in the file; `stored` is the stored type."""

    file: Path
    shape: tuple[int, ...]
    stored: str
    offset: int


class _Safetensors(WeightSource):
    """The tensors of the added files; errors name `path`."""

    format = "safetensors"

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamps: dict[Path, Stamp] = {}
        self._tensors: dict[str, _Tensor] = {}

    @override
    def names(self) -> tuple[str, ...]:
        """The names of the tensors, in alphabetical order."""
        return tuple(sorted(self._tensors))

    @override
    def shape(self, name: str) -> tuple[int, ...]:
        """The tensor's shape."""
        return self._tensor(name).shape

    @override
    def dtype(self, name: str) -> str:
        """The type by its safetensors name, except "f32", "f16" and "bf16" in lower case."""
        stored = self._tensor(name).stored
        return _TYPES.get(stored, stored)

    @override
    def blocks(self, name: str) -> Iterator[NDArray[np.float32]]:
        """The values of the tensor, which must be f32, f16 or bf16."""
        tensor = self._tensor(name)
        dtype = _numpy_type(name, tensor, _TYPES)
        with tensor.file.open("rb", buffering=0) as file:
            file.seek(tensor.offset)
            for shape in block_shapes(tensor.shape):
                count = math.prod(shape) * dtype.itemsize
                raw = read_array(file, tensor.file, count, f"tensor {name}")
                yield raw.view(dtype).reshape(shape).astype(np.float32, copy=False)

    def stored(self, name: str) -> NDArray[Any]:
        """The whole tensor as it is stored; raises UnsupportedType for a type without a dtype."""
        tensor = self._tensor(name)
        dtype = _numpy_type(name, tensor, _NUMPY_TYPES)
        count = math.prod(tensor.shape) * dtype.itemsize
        with tensor.file.open("rb", buffering=0) as file:
            file.seek(tensor.offset)
            raw = read_array(file, tensor.file, count, f"tensor {name}")
        return raw.view(dtype).reshape(tensor.shape)

    def has(self, name: str) -> bool:
        """Whether there is a tensor with this name."""
        return name in self._tensors

    def file(self, name: str) -> Path:
        """The file that has a tensor."""
        return self._tensor(name).file

    @override
    def require_unchanged(self) -> None:
        """Raise BadFile if a file has changed since it was opened."""
        require_unchanged(self._stamps)

    def _tensor(self, name: str) -> _Tensor:
        if name not in self._tensors:
            raise NoSuchTensor(f"{self._path} has no tensor {name!r}")
        return self._tensors[name]

    def _add(self, path: Path, prefix: str = "") -> None:
        """Add the tensors of a file, with a prefix to their names."""
        self._stamps[path] = stamp(path)
        try:
            with safe_open(path, framework="numpy") as file:
                offsets = _offsets(path)
                for stored_name in file.keys():  # noqa: SIM118  (not a dict)
                    name = prefix + stored_name
                    if name in self._tensors:
                        raise BadFile(
                            f"tensor {name} is in both {self._tensors[name].file} and {path}"
                        )
                    rows = file.get_slice(stored_name)
                    shape = tuple(rows.get_shape())
                    if 0 in shape or len(shape) > _MAX_AXES:
                        raise BadFile(
                            f"{path}: tensor {name} has shape {shape!r:.80}, expected at most "
                            f"{_MAX_AXES} axes, none of them empty"
                        )
                    self._tensors[name] = _Tensor(
                        file=path, shape=shape, stored=rows.get_dtype(), offset=offsets[stored_name]
                    )
        except OSError as error:
            raise BadFile(f"cannot read {path}: {error.strerror or error}") from error
        except (SafetensorError, ValueError, KeyError) as error:
            reason = _other_format(path) or f"{error}; download or copy it again"
            raise BadFile(f"{path} is not a complete safetensors file: {reason}") from error


def _numpy_type(name: str, tensor: _Tensor, expected: Mapping[str, object]) -> np.dtype[Any]:
    """The dtype of a tensor; raises UnsupportedType for a type that is not expected."""
    if tensor.stored not in expected:
        raise UnsupportedType(
            f"{tensor.file}: tensor {name} is {tensor.stored}, expected one of "
            f"{', '.join(expected)}"
        )
    return _NUMPY_TYPES[tensor.stored]


def _other_format(path: Path) -> str | None:
    """What a file is that is not in this format, if that is known."""
    with path.open("rb") as file:
        head = file.read(HEAD_BYTES)
    return None if head[_LENGTH_BYTES : _LENGTH_BYTES + 1] == b"{" else other_format(head)


def _offsets(path: Path) -> dict[str, int]:
    """The offset of each tensor from the start of the file, which the library does not provide."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
        header = strict_json.parse(file.read(length).decode())
    start = _LENGTH_BYTES + length
    return {
        name: start + entry["data_offsets"][0]
        for name, entry in header.items()
        if name != "__metadata__"
    }


class SafetensorsFile(_Safetensors):
    """The tensors of one file without metadata. Raises NoWeights or BadFile."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        if not path.exists():
            raise NoWeights(f"{path} does not exist; specify a safetensors file")
        self._add(path)

    @override
    def files(self) -> tuple[Path, ...]:
        """The file."""
        return (self._path,)

    @override
    def metadata(self) -> Mapping[str, object]:
        """Empty."""
        return {}


class SafetensorsSource(_Safetensors):
    """The tensors and config of a folder. Raises NoWeights, or BadFile if it is incomplete."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._folder = folder
        self._stamps[folder / CONFIG] = stamp(folder / CONFIG)
        self._config = read_json(folder / CONFIG)
        self._pooling = folder / POOLING
        if self._pooling.exists():
            self._stamps[self._pooling] = stamp(self._pooling)
            self._config[POOLING] = _pooling(self._pooling)
        self._score = folder / LOGIT_SCORE
        if self._score.exists():
            self._stamps[self._score] = stamp(self._score)
            self._config[LOGIT_SCORE] = read_json(self._score)
        self._modelopt = folder / MODELOPT
        if self._modelopt.exists():
            self._stamps[self._modelopt] = stamp(self._modelopt)
            self._config = {**_modelopt_settings(self._modelopt), **self._config}
        self._processors = [folder / name for name in (PROCESSOR, ALL_PROCESSORS)]
        for path in (path for path in self._processors if path.exists()):
            self._stamps[path] = stamp(path)
            self._config |= _processor_settings(path)
        if (folder / INDEX).exists():
            self._add_indexed()
        elif (folder / SINGLE).exists():
            self._add(folder / SINGLE)
        else:
            raise NoWeights(f"{folder} has neither {SINGLE} nor {INDEX}{_found_instead(folder)}")
        self._dense = sorted(folder.glob(_DENSE))
        for dense in self._dense:
            self._stamps[dense / CONFIG] = stamp(dense / CONFIG)
            self._config[f"{dense.name}/{CONFIG}"] = read_json(dense / CONFIG)
            self._add(dense / SINGLE, prefix=f"{dense.name}.")

    @property
    @override
    def folder(self) -> Path:
        """The folder."""
        return self._folder

    @override
    def files(self) -> tuple[Path, ...]:
        """config.json, also of modules, the index if there is one, and the tensors."""
        index = self.folder / INDEX
        shards = sorted({tensor.file for tensor in self._tensors.values()})
        modules = (dense / CONFIG for dense in self._dense)
        others = (self._pooling, self._score, self._modelopt, *self._processors, *modules, index)
        return (self.folder / CONFIG, *(path for path in others if path.exists()), *shards)

    @override
    def metadata(self) -> Mapping[str, object]:
        """The parsed config.json; by their paths, the pooling and the configurations of modules."""
        return self._config

    def _add_indexed(self) -> None:
        index = self.folder / INDEX
        self._stamps[index] = stamp(index)
        shard_of = read_json(index).get("weight_map")
        if not isinstance(shard_of, dict) or not all(isinstance(f, str) for f in shard_of.values()):
            raise BadFile(f"{index} has no weight_map from tensors to files")
        present = {path.name for path in self.folder.iterdir()}
        for shard in sorted(set(shard_of.values())):
            if shard not in present:
                raise BadFile(
                    f"{index} names {shard!r}, which {self.folder} does not contain; download it"
                )
            self._add(self.folder / shard)
        for name, shard in shard_of.items():
            if name not in self._tensors or self._tensors[name].file.name != shard:
                raise BadFile(
                    f"{index} locates tensor {name} in {shard}, which does not contain it"
                )


def _pooling(path: Path) -> str:
    """The pooling that sentence-transformers wrote: `mean`, `last`, `cls` or another name."""
    data = read_json(path)
    modes = [key.removeprefix(_MODE) for key in data if key.startswith(_MODE) and data[key] is True]
    name = str(data.get("pooling_mode", "+".join(modes)))
    names = {"mean_tokens": "mean", "lasttoken": "last", "cls_token": "cls"}
    return names.get(name, name)


def _found_instead(folder: Path) -> str:
    """The end of a message: other weights in a folder, and what to do."""
    for pattern, action in (
        ("model-*-of-*.safetensors", f"download {INDEX}, too"),
        ("*.gguf", "specify this file"),
    ):
        for found in sorted(folder.glob(pattern)):
            return f", but {found.name}; {action}"
    if other := other_weights(folder):
        return f"; {other}"
    for found in sorted(folder.glob("*.safetensors")):
        return f", but {found.name}; rename it to {SINGLE} if it has all tensors"
    return "; download them"


def _processor_settings(path: Path) -> dict[str, Any]:
    """The settings of the processors of images and of sound, by their keys in the metadata."""
    settings = read_json(path)
    if path.name == PROCESSOR:  # models that read sound have it there, too, or nothing else
        if "feature_size" not in settings:
            return {PROCESSOR: settings}
        if "patch_size" not in settings:
            return {FEATURE_EXTRACTOR: settings}
        of_sound = {key: settings.pop(key) for key in _OF_SOUND if key in settings}
        return {FEATURE_EXTRACTOR: of_sound, PROCESSOR: settings}
    # As newer folders have it; transformers prefers it.
    named = {PROCESSOR: "image_processor", FEATURE_EXTRACTOR: "feature_extractor"}
    found = {key: settings.get(name) for key, name in named.items()}
    return {key: value for key, value in found.items() if isinstance(value, dict)}


def _modelopt_settings(path: Path) -> dict[str, Any]:
    """The settings of ModelOpt as config.json has them in newer folders; raises BadFile."""
    settings = read_json(path).get("quantization")
    if not isinstance(settings, dict):
        raise BadFile(f"{path} has no object `quantization`; download the folder again")
    return {QUANTIZED[0]: {**settings, "quant_method": "modelopt"}}


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file; raises BadFile if it is missing or not an object.

    A number that nothing counts with is an UnusableNumber, since most fields are not used.
    """
    try:
        data = strict_json.parse(read_text(path), keep_unusable=True)
    except (OSError, ValueError) as error:
        raise BadFile(f"cannot read {path}: {reason(error)}") from error
    if not isinstance(data, dict):
        raise BadFile(f"{path} contains {type(data).__name__}, expected a JSON object")
    return data
