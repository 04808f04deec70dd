"""The real SmolLM2 135M, as stored and in f32: llama.cpp's tokens, embeddings, and a chat."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tokenizers import Tokenizer

from hearthd.baker.compare.report.summary import summarize
from hearthd.baker.compare.sides.recording import read_recording
from hearthd.baker.reference.numpy_runtime import open_reference
from hearthd.bundle import CHAT_TEMPLATE, TOKENIZER, LanguageManifest, read_manifest_of
from hearthd.runtime.interface import read_prompt
from hearthd.runtime.open_bundle import open_bundle
from hearthd.server.services.language_service import open_language_service
from tests.baker.compare.test_compare_real_model import TOKENS, against
from tests.server.openai_servers import client_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hearthd.baker.compare.measurement.side_by_side import PassageResult
    from hearthd.runtime.language_model import IreeRuntime
    from tests.conftest import Bundles

pytestmark = pytest.mark.slow

RECORDING = read_recording(
    Path(__file__).parent.parent / "golden" / "smollm2_135m_llamacpp_f32.json"
)
# Stories, code, three languages, runs of spaces, and a text of 524 tokens.
CASES = ("story", "code", "french", "chinese", "spaces", "artistic_520")


@pytest.fixture(scope="module")
def bundle(bundles: Bundles) -> Path:
    return bundles["smollm2"]


@pytest.fixture(scope="module")
def runtime(bundle: Path) -> IreeRuntime:
    return open_bundle(bundle, threads=None)[1]


def readings(runtime: IreeRuntime) -> Iterator[PassageResult]:
    """What a runtime predicts in the answers of CASES."""
    cases = tuple(case for case in RECORDING.cases if case.name in CASES)
    assert len(cases) == len(CASES)
    yield from against(dataclasses.replace(RECORDING, cases=cases), runtime)


def test_probabilities_of_weights_as_stored(runtime: IreeRuntime) -> None:
    for reading in readings(runtime):
        summary = summarize(reading.positions)
        assert summary.positions == TOKENS
        assert summary.kl_max < 4e-4, reading.passage.name


@pytest.mark.nightly
def test_f32_predicts_every_token_and_its_log_probability(bundles: Bundles) -> None:
    for reading in readings(open_bundle(bundles["smollm2-f32"], threads=None)[1]):
        assert reading.first_difference is None, reading.passage.name
        summary = summarize(reading.positions)
        assert summary.positions == TOKENS
        assert summary.largest_difference <= 0.002, reading.passage.name


@pytest.mark.nightly
def test_an_embedding_equals_numpy_for_any_chunks(bundles: Bundles) -> None:
    bundle = bundles["smollm2-f32"]
    _, runtime = open_bundle(bundle, threads=None)
    ids = next(case.prompt_ids for case in RECORDING.cases if case.name == "artistic_520")
    reference = open_reference(bundle, read_manifest_of(bundle, LanguageManifest))
    whole = runtime.embed(0, ids[:40], 0)
    expected = reference.embed(0, ids[:40], 0)
    scale = np.abs(expected).max()
    np.testing.assert_allclose(whole, expected, atol=1e-4 * scale)
    parts = runtime.embed(0, ids[:23], 0) + runtime.embed(0, ids[23:40], 23)
    np.testing.assert_allclose(parts, whole, atol=1e-4 * scale)
    # Two texts of one length differ far more than that.
    assert np.abs(whole - runtime.embed(0, ids[200:240], 0)).max() > 1e-2 * scale


def test_a_question_in_chat_form_is_answered_and_the_answer_ends(
    bundle: Path, runtime: IreeRuntime
) -> None:
    tokenizer = Tokenizer.from_file(str(bundle / TOKENIZER))
    assert "<|im_start|>" in (bundle / CHAT_TEMPLATE).read_text(encoding="utf-8")
    prompt = tokenizer.encode(
        "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n"
    ).ids
    eos = read_manifest_of(bundle, LanguageManifest).special_tokens.eos
    answer: list[int] = []
    logits = read_prompt(runtime, prompt)
    while (token := int(logits.argmax())) not in eos:
        assert len(answer) < 64, tokenizer.decode(answer)
        logits = runtime.decode([0], [token], [len(prompt) + len(answer)])[0]
        answer.append(token)
    assert "Paris" in tokenizer.decode(answer)


def test_a_conversation_by_the_openai_client(bundle: Path) -> None:
    question: Any = [{"role": "user", "content": "What is the capital of France?"}]
    with client_of(open_language_service(bundle)) as client:
        asked: dict[str, Any] = {"model": "m", "messages": question, "temperature": 0}
        answer = client.chat.completions.create(**asked, max_tokens=64).choices[0]
        assert "Paris" in (answer.message.content or "")
        assert answer.finish_reason == "stop"
        chunks = list(client.chat.completions.create(**asked, max_tokens=64, stream=True))
        pieces = [chunk.choices[0].delta.content or "" for chunk in chunks]
        assert "".join(pieces) == answer.message.content
        response = client.responses.create(model="m", input=question, temperature=0)
        assert (response.output_text, response.status) == (answer.message.content, "completed")
