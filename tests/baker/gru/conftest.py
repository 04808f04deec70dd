"""The baked GRU that these tests share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from safetensors.numpy import save_file

from hearthd.baker.pipeline.bake import bake
from tests.baker.gru.gru_example import (
    LAYERS,
    B,
    D,
    H,
    S,
    gru_options,
    weights,
)
from tests.conftest import Silent

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    Array = NDArray[np.float32]


@pytest.fixture(scope="session")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("weights") / "model.safetensors"
    save_file(weights(), path)
    return path


@pytest.fixture(scope="session")
def bundle(file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bake(gru_options(file, tmp_path_factory.mktemp("gru") / "sensor"), Silent())


@pytest.fixture(scope="session")
def sequence() -> tuple[Array, Array]:
    rng = np.random.default_rng(8)
    return rng.normal(size=(S, B, D)).astype("f4"), rng.normal(size=(LAYERS, B, H)).astype("f4")
