"""`bake --prefix`: the ids of a prefix, and its blocks in a bundle."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from hearthd.baker.atomic_folder import BakeError
from hearthd.baker.pipeline.bake import bake
from hearthd.baker.pipeline.prompt_prefix import PrefixError, prefix_ids, write_prefix
from hearthd.models.bundle import PREFIX, read_manifest, verify_files
from hearthd.runtime.kv_blocks import block_keys, read_blocks
from hearthd.server.sampling.options import SamplingOptions
from hearthd.server.services.language_service import EngineOptions, open_language_service
from hearthd.server.text.answer import AnswerSummary
from hearthd.server.text.text_request import TextRequest
from hearthd.server.text.tokenizer import Tokenizer
from tests.conftest import OPENING, OTHER_TARGET, Silent, options_for
from tests.fake_runtime import FakeRuntime
from tests.server import fakes

if TYPE_CHECKING:
    from pathlib import Path

    from hearthd.server.services.language_service import LanguageService
    from tests.conftest import Bundles

LIBRARY = fakes.gemma_like(special=["<turn>"])
SYSTEM = OPENING.read_text(encoding="utf-8")


@pytest.mark.parametrize("text", ["the dog", "<bos>the dog", "<turn>the dog<turn>\n", " a  b"])
def test_a_prefix_is_encoded_like_a_prompt(text: str) -> None:
    """As the server reads it: /generate must find what was baked."""
    ids = prefix_ids(text, LIBRARY, fakes.BOS, chunk=2, context=64)
    assert ids == Tokenizer(LIBRARY, bos=fakes.BOS).encode(text)


@pytest.mark.parametrize(("chunk", "context"), [(50, 64), (1, 3)])
def test_a_prefix_of_wrong_length_is_rejected(chunk: int, context: int) -> None:
    with pytest.raises(PrefixError, match=r"--prefix has \d+ tokens, expected"):
        prefix_ids("the quick dog", LIBRARY, fakes.BOS, chunk=chunk, context=context)


def test_only_whole_chunks_are_written(tmp_path: Path) -> None:
    runtime = FakeRuntime(vocab_size=50, context=64, chunk=4, slots=2)
    ids = tuple(range(11))
    write_prefix(runtime, ids, tmp_path / PREFIX)
    blocks = read_blocks(tmp_path / PREFIX, runtime.save(0, 4, 8).nbytes)
    assert tuple(blocks) == block_keys(ids, 4)
    runtime.restore(1, 0, list(blocks.values()))
    rows = [runtime.decode([slot], [9], [8]) for slot in (0, 1)]
    assert (rows[0] == rows[1]).all()


def test_a_prefix_for_another_machine_is_rejected(tmp_path: Path) -> None:
    options = options_for(tmp_path / "out", target=OTHER_TARGET, prefix=OPENING)
    with pytest.raises(BakeError, match="--prefix: this machine cannot run a program for aarch64"):
        bake(options, Silent())


def test_a_prefix_that_is_not_text_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "prefix.txt").write_bytes(b"\xff")
    with pytest.raises(BakeError, match="not UTF-8 text"):
        bake(options_for(tmp_path / "out", prefix=tmp_path / "prefix.txt"), Silent())


@pytest.mark.slow
def test_a_baked_prefix_is_reused_and_changes_no_answer(bundles: Bundles) -> None:
    bundle = bundles["int8-g32"]
    verify_files(bundle, read_manifest(bundle))
    cached, answers = [], []
    for cache_ram in (2**28, 0):
        service = open_language_service(bundle, options=EngineOptions(cache_ram=cache_ram))
        summary, text = asyncio.run(ask(service, f"{SYSTEM} What is the capital of France?"))
        cached.append(summary.cached_tokens)
        answers.append(text)
    assert cached == [128, 0]
    assert answers[0] == answers[1]


async def ask(service: LanguageService, prompt: str) -> tuple[AnswerSummary, str]:
    """The summary and the text of a greedy answer."""
    await service.start()
    request = TextRequest(
        prompt=prompt,
        max_tokens=8,
        stop=(),
        sampling=SamplingOptions(temperature=0),
        seed=1,
    )
    text = ""
    with await service.complete(request) as completion:
        async for piece in completion.pieces():
            if isinstance(piece, AnswerSummary):
                await service.stop()
                return piece, text
            text += piece.text
    raise AssertionError("no summary")
