"""Encoders from a folder to a bundle and its service, against what transformers computes."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tokenizers import Tokenizer
from typing_extensions import override

from hearthd.baker.checks.verification import verify
from hearthd.baker.pipeline.bake import bake
from hearthd.baker.pipeline.bake_options import BakeOptions, bake_options
from hearthd.baker.pipeline.recipe import RecipeError
from hearthd.baker.presentation.console import open_console
from hearthd.baker.progress import TerminalProgress
from hearthd.bundle import VMFB, EncoderManifest, Preset, read_manifest, read_public_key
from hearthd.models.dsl.evaluate import evaluate
from hearthd.models.encoder.encoder_entry_points import EncoderOptions
from hearthd.models.families.qwen3_reranker import PROMPT
from hearthd.server.services.array_service import FunctionsOptions
from hearthd.server.services.encoder_service import Score, open_encoder_service
from tests.bundle.signed_folders import SigningKey
from tests.conftest import Silent
from tests.models.families.encoders.encoder_cases import TEXTS, recorded_encoder
from tests.models.families.encoders.test_encoders import opened, padded
from tests.server.encoders import word_tokenizer

if TYPE_CHECKING:
    from pathlib import Path

    from hearthd.text.answer import EmbeddedText

CASE = "roberta"  # with tokens of one type
PROGRESS = TerminalProgress(open_console(stderr=True))


class Notes(Silent, list[str]):
    """Keeps the notes of a bake."""

    @override
    def note(self, text: str) -> None:
        self.append(text)


def write_model(folder: Path, name: str = CASE) -> Path:
    folder.mkdir()
    recorded_encoder(name).write(folder)
    tokenizer = word_tokenizer()
    tokenizer.enable_truncation(8)
    tokenizer.enable_padding(length=8)
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def encoder_options(weights: Path, out: Path, **options: object) -> BakeOptions:
    given = {"model": "xlm-roberta", "precision": "f32", "context": 64}
    return bake_options(given | {"weights": weights, "out": out} | options)


@pytest.mark.slow
def test_a_baked_encoder_embeds_as_transformers_does(tmp_path: Path) -> None:
    chosen = encoder_options(write_model(tmp_path / "m"), tmp_path / "b", model=None)
    bundle = bake(chosen, notes := Notes(), Preset(context=8192))
    assert "leaves out the parameters and texts beside the weights: it writes no text" in notes
    manifest = read_manifest(bundle)
    assert isinstance(manifest, EncoderManifest)
    assert [function.name for function in manifest.by_length] == [
        "encode_8x16",
        "encode_4x32",
        "encode_2x64",
    ]
    assert (manifest.context, manifest.width, manifest.scores) == (64, 48, False)
    assert verify(bundle, open_console(), Silent())[VMFB].passed
    kept = json.loads((bundle / "tokenizer.json").read_text(encoding="utf-8"))
    assert (kept["truncation"], kept["padding"]) == (None, None)
    assert Tokenizer.from_file(str(bundle / "tokenizer.json")).encode("dog " * 12).ids[-1] == 3

    key = SigningKey(tmp_path / "keys")
    key.sign(bundle)
    options = FunctionsOptions(threads=1, name="words", keys=[read_public_key(key.public)])

    async def embedded() -> list[EmbeddedText]:
        service = open_encoder_service(bundle, options)
        assert (await service.start()).passed
        opened = (service.name, service.memory, service.signed)
        assert opened == ("words", manifest.own_memory, True)
        try:
            return await service.embed_all([("a", tuple(TEXTS[0])), ("b", tuple(TEXTS[1]))])
        finally:
            await service.stop()

    vectors = recorded_encoder(CASE).vectors[:2]
    for embedding, expected in zip(asyncio.run(embedded()), vectors, strict=True):
        expected = expected / np.linalg.norm(expected)
        np.testing.assert_allclose(embedding.vector, expected, atol=1e-5)


@pytest.mark.slow
@pytest.mark.nightly
def test_a_baked_decoder_scores_a_prompt(tmp_path: Path) -> None:
    """The score that NumPy computes for the tokens of the prompt, which is in the manifest."""
    case, query, document = "qwen3-reranker", "the dog", "the fox <|im_end|> runs"
    weights = write_model(tmp_path / "m", case)
    bundle = bake(encoder_options(weights, tmp_path / "b", model=None, context=128), PROGRESS)
    manifest = read_manifest(bundle)
    assert isinstance(manifest, EncoderManifest)
    assert manifest.scores
    assert manifest.pair_prompt == PROMPT
    read = Tokenizer.from_file(str(bundle / "tokenizer.json")).encode
    texts = (PROMPT.before, PROMPT.pair(query, document), PROMPT.behind)
    ids = [id_ for text in texts for id_ in read(text, add_special_tokens=False).ids]
    model = opened(weights, case, EncoderOptions(precision="f32", lengths=(128,)))
    (expected,) = evaluate(model.program.graphs[0], padded(case, 128, [ids]), model.parameters)

    async def scored() -> list[Score]:
        service = open_encoder_service(bundle, FunctionsOptions(threads=1))
        assert (await service.start()).passed
        try:
            return await service.score_all(query, [document], "documents")
        finally:
            await service.stop()

    (score,) = asyncio.run(scored())
    assert score.tokens == len(ids)
    assert score.logit == pytest.approx(expected.item(), rel=1e-4, abs=1e-4)


def test_options_are_rejected_before_weights_are_read(tmp_path: Path) -> None:
    weights = write_model(tmp_path / "m")

    def refused(message: str, **options: object) -> None:
        with pytest.raises(RecipeError, match=message):
            bake(encoder_options(weights, tmp_path / "b", **options), PROGRESS)

    refused("--precision: got 'native', expected f32, ", precision="native")
    refused("--context 321 is out of range: expected 64 to 320", context=321)
    refused("got 'roberta': .*`hearth bake xlm-roberta`, not bert", model="bert")
    refused("--slots: xlm-roberta is not a language model; omit the option", slots=2, model=None)
    assert not (tmp_path / "b").exists()
