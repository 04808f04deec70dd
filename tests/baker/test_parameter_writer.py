"""Weights are written by several threads, and the first error ends the others."""

from __future__ import annotations

import signal
import threading
import time
from typing import TYPE_CHECKING

import numpy as np
import pytest
from safetensors.numpy import save_file
from typing_extensions import override

from hearthd.baker.parameters import parameter_writer
from hearthd.baker.parameters.irpa import open_archive
from hearthd.baker.parameters.parameter_writer import Located, write_parameters
from hearthd.baker.parameters.quantization import NotFiniteError, encoded
from hearthd.baker.weights.safetensors import SafetensorsFile
from hearthd.baker.weights.source import BadFile
from hearthd.baker.weights.source_in_front import SourceInFront
from hearthd.models.dsl.graph import Parameter, Tensor
from hearthd.models.dsl.rewrites.stored_weights import Weight
from hearthd.models.dsl.storage import STORAGES
from hearthd.models.program import StoredTensor

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

STORAGE = STORAGES["int8-g32"]
SHAPE = (32, 64)
BLOCKS = 200


class Read(SourceInFront):
    """Keeps the names of tensors that were read."""

    def __init__(self, folder: Path, tensors: Mapping[str, NDArray[np.float32]]) -> None:
        save_file(dict(tensors), folder / "model.safetensors")
        super().__init__(SafetensorsFile(folder / "model.safetensors"))
        self.read_names: list[str] = []

    @override
    def blocks(self, name: str) -> Iterator[NDArray[np.float32]]:
        self.read_names.append(name)
        return super().blocks(name)


class Long(Read):
    """Has a tensor w0 of BLOCKS blocks, for 20 s; presses Ctrl-C after the first, or does not."""

    def __init__(
        self, folder: Path, tensors: Mapping[str, NDArray[np.float32]], *, interrupted: bool
    ) -> None:
        super().__init__(folder, tensors)
        self._interrupted = interrupted
        self.blocks_read = 0

    @override
    def blocks(self, name: str) -> Iterator[NDArray[np.float32]]:
        if name != "w0":
            yield from super().blocks(name)
            return
        for block in np.split(np.concatenate([*super().blocks(name)]), BLOCKS):
            self.blocks_read += 1
            yield block
            if self._interrupted and self.blocks_read == 1:
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            time.sleep(20 / BLOCKS)


def located(name: str, shape: tuple[int, int] = SHAPE) -> Located:
    types = STORAGE.arrays(*shape)
    weight = Weight(
        sources={name: shape},
        storage=STORAGE,
        parameters={f"{name}.{array}": Tensor(types[array], Parameter()) for array in types},
    )
    return Located(weight, ((StoredTensor(name),),))


def test_each_weight_has_its_arrays(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    tensors = {f"w{i}": rng.normal(size=SHAPE).astype(np.float32) for i in range(20)}
    weights = [located(name) for name in tensors]
    told: list[int] = []
    path = tmp_path / "params.irpa"
    write_parameters(Read(tmp_path, tensors), weights, path, told.append)
    stored = open_archive(path)
    for entry, values in zip(weights, tensors.values(), strict=True):
        for name, array in zip(entry.weight.parameters, encoded(STORAGE, values), strict=True):
            np.testing.assert_array_equal(stored[name], array.reshape(-1).view(np.uint8))
    assert sum(told) == sum(array.nbytes for array in stored.values())


def test_the_bytes_that_are_final_are_told_while_weights_are_written(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    tensors = {f"w{i}": rng.normal(size=SHAPE).astype(np.float32) for i in range(20)}
    path = tmp_path / "params.irpa"
    final: list[bytes] = []

    def reached(count: int) -> None:
        final.append(path.read_bytes()[:count])

    weights = [located(name) for name in tensors]
    write_parameters(Read(tmp_path, tensors), weights, path, lambda _: None, reached=reached)
    written = path.read_bytes()
    assert all(written.startswith(start) for start in final)
    sizes = [len(start) for start in final]
    assert sizes == sorted(sizes)
    assert 0 < sizes[0] < sizes[len(sizes) // 2] < sizes[-1] == len(written)


def test_after_an_error_no_other_weight_is_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tensors = {f"w{i}": np.ones(SHAPE, np.float32) for i in range(3)}
    tensors["w1"][3, 5] = np.nan
    source = Read(tmp_path, tensors)
    monkeypatch.setattr(parameter_writer, "_THREADS", 1)
    with pytest.raises(NotFiniteError, match=r"tensor w1: .* is nan"):
        write_parameters(
            source, [located(name) for name in tensors], tmp_path / "a", lambda _: None
        )
    assert source.read_names == ["w0", "w1"]


@pytest.mark.parametrize("error", [NotFiniteError, KeyboardInterrupt])
def test_a_long_weight_ends_within_a_block_of_an_error(
    tmp_path: Path, error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of Ctrl-C, which is raised in the thread that waits for the others."""
    shape = (BLOCKS * SHAPE[0], SHAPE[1])
    last = np.full(SHAPE, np.nan if error is NotFiniteError else 1.0, np.float32)
    tensors = {"w0": np.ones(shape, np.float32), "w1": last}
    source = Long(tmp_path, tensors, interrupted=error is KeyboardInterrupt)
    monkeypatch.setattr(parameter_writer, "_THREADS", 2)
    weights = [located(name, values.shape) for name, values in tensors.items()]
    with pytest.raises(error):
        write_parameters(source, weights, tmp_path / "a", lambda _: None)
    assert source.blocks_read < BLOCKS


def test_a_norm_of_zeros_is_refused_and_a_matrix_of_zeros_is_not(tmp_path: Path) -> None:
    """A program that allocated a file, and did not download all of it, left zeros there."""

    def write(name: str, value: float, offset: float = 0) -> None:
        source = Read(tmp_path, {name: np.full(SHAPE, value, np.float32)})
        entry = Located(located(name).weight, ((StoredTensor(name, offset=offset),),))
        write_parameters(source, [entry], tmp_path / "a", lambda _: None)

    for norm in ("layers.0.q_norm.weight", "layers.0.input_layernorm.weight"):
        with pytest.raises(BadFile, match=f"model.safetensors: tensor {norm} has only zeros, as "):
            write(norm, 0)
        write(norm, 0.5)
        write(norm, 0, offset=1)  # as folders have the norms of Gemma
    write("layers.0.down_proj.weight", 0)


@pytest.mark.parametrize(
    ("tensor", "shape"),
    [
        (StoredTensor("w", grouped=(2, 0, 1)), ()),
        (StoredTensor("w", transposed=True), ()),
        (StoredTensor("w", transposed=True), (3,)),
    ],
)
def test_a_tensor_with_too_few_axes_has_the_shape_of_no_parameter(
    tensor: StoredTensor, shape: tuple[int, ...], tmp_path: Path
) -> None:
    source = Read(tmp_path, {"w": np.ones(shape, np.float32)})
    assert parameter_writer._shape(source, tensor) == shape
