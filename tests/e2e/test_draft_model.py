"""Small bundles with a draft model: what it drafts, and that answers are those without it."""

from __future__ import annotations

import io
import itertools
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from hearthd.baker.atomic_folder import BakeError
from hearthd.baker.checks import inspection
from hearthd.baker.checks.reproduction import reproduce
from hearthd.baker.pipeline.bake import bake
from hearthd.bundle import LanguageManifest, read_manifest_of
from hearthd.runtime.language_model import IreeRuntime
from tests.baker.small_gemma import small_gemma
from tests.conftest import Silent, few_entry_points, options_for
from tests.e2e.test_mtp import READ, TEXT, answers
from tests.models.families.gemma4_pair import DRAFTED as ASSISTED
from tests.models.families.gemma4_pair import DRAFTED_IN_CLUSTERS as IN_CLUSTERS
from tests.models.families.gemma4_pair import write_assistant, write_clustered, write_gemma4
from tests.models.families.llama_pair import (
    DRAFTED,
    FIRST,
    LARGE,
    SMALL,
    write_llama,
    write_llama_gguf,
)  # fmt: skip
from tests.models.families.mtp_models import write_mtp_model
from tests.server.engine.test_engine_random import free_costs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = [pytest.mark.nightly, pytest.mark.slow]


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_llama(tmp_path_factory.mktemp("drafts") / "large", LARGE)


def baked(weights: Path, out: Path, drafter: Path | None, precision: str = "f32") -> IreeRuntime:
    shape = {"slots": 2, "context": 512, "precision": precision, "drafter": drafter}
    with few_entry_points():
        bundle = bake(options_for(out, model=None, weights=weights, **shape), Silent())
    return IreeRuntime(bundle, read_manifest_of(bundle, LanguageManifest), threads=2)


def drafted(runtime: IreeRuntime, slot: int, position: int, count: int = 3) -> list[int]:
    drafts = runtime.draft(slot, TEXT[position], position)
    return [token for token, _ in itertools.islice(drafts, count)]


def decode_text(runtime: IreeRuntime, slot: int, first: int, stop: int) -> None:
    for at in range(first, stop):
        runtime.decode([slot], [TEXT[at]], [at])


@pytest.mark.parametrize("write", [write_llama, write_llama_gguf])
def test_drafts_are_those_of_transformers(
    write: Callable[[Path, int], Path], weights: Path, tmp_path: Path
) -> None:
    """After decodes, rejected drafts, a batch without drafts, and a restored prompt."""
    runtime = baked(weights, tmp_path / "b", write(tmp_path / "small", SMALL))
    last = FIRST + len(DRAFTED)
    runtime.prefill(0, TEXT[:FIRST], 0)
    found = []
    for at in range(FIRST, last):
        found.append(drafted(runtime, 0, at))
        decode_text(runtime, 0, at, at + 1)
    assert found == DRAFTED

    runtime.prefill(0, TEXT[:FIRST], 0)
    found = []
    for at in range(FIRST, last, 2):
        found.append(drafted(runtime, 0, at))
        list(runtime.verify(0, [*TEXT[at : at + 2], 5, 6], at))  # the last two are rejected
        found.append(drafted(runtime, 0, at + 1))
    assert found == DRAFTED

    rows = runtime.save(0, 0, FIRST - 4)
    runtime.prefill(1, TEXT[100:200], 0)
    decode_text(runtime, 1, 100, 101)
    runtime.restore(1, 0, [rows])
    runtime.prefill(1, TEXT[FIRST - 4 : FIRST], FIRST - 4)
    runtime.prefill(0, TEXT[:7], 0)
    for at in range(FIRST, last - 1):
        runtime.decode([1, 0], [TEXT[at], 9], [at, at - 10])
    assert drafted(runtime, 1, last - 1) == DRAFTED[-1]


def test_a_model_drafts_its_own_tokens(weights: Path, tmp_path: Path) -> None:
    """From position 0 too, in a slot that had another sequence."""
    runtime = baked(weights, tmp_path / "b", weights)
    for first in (FIRST, 0):
        if first:
            runtime.prefill(0, TEXT[:first], 0)
        token, drafts = TEXT[first], list[int]()
        for at in range(first, first + 40):
            if not drafts:
                drafts = [token for token, _ in itertools.islice(runtime.draft(0, token, at), 3)]
            (logits,) = runtime.decode([0], [token], [at])
            token = int(logits.argmax())
            assert token == drafts.pop(0)


def draft_models(folder: Path) -> Iterator[Path]:
    """Models with windows, and with states."""
    yield small_gemma(folder / "gemma")
    yield write_mtp_model(folder / "qwen", "qwen35")


@pytest.mark.parametrize("number", [0, 1])
def test_a_draft_model_can_have_windows_or_states(
    number: int, weights: Path, tmp_path: Path
) -> None:
    """Its drafts are the tokens that it generates alone, after rejected ones too."""
    small = list(draft_models(tmp_path))[number]
    alone = baked(small, tmp_path / "alone", None)
    runtime = baked(weights, tmp_path / "b", small)
    for start in (0, 128):
        prompt = TEXT[start : min(start + 128, READ)]
        runtime.prefill(0, prompt, start)
    for at in range(READ, READ + 12, 2):
        for position in (at, at + 1):
            for start in (0, 128):
                alone.prefill(0, TEXT[start : min(start + 128, position)], start)
            token, expected = TEXT[position], []
            for ahead in range(3):
                (logits,) = alone.decode([0], [token], [position + ahead])
                token = int(logits.argmax())
                expected.append(token)
            assert drafted(runtime, 0, position) == expected
            if position == at:
                list(runtime.verify(0, [*TEXT[at : at + 2], 5, 6], at))


@pytest.mark.parametrize("precision", ["f32", "int8-g32"])
def test_answers_have_the_bits_of_a_bundle_without_a_draft_model(
    precision: str, weights: Path, tmp_path: Path
) -> None:
    """At each temperature, with penalties, constraints, mates and prompts of the cache."""
    drafting = baked(weights, tmp_path / "drafting", weights, precision)
    plain = baked(weights, tmp_path / "plain", None, precision)
    assert drafting.has_drafter
    assert not plain.has_drafter
    expected, _ = answers(plain, None)
    found, accepted = answers(drafting, free_costs(drafting))
    assert found == expected
    _, from_lookup = answers(plain, free_costs(plain))
    assert accepted > from_lookup + 100


def test_a_bundle_with_a_draft_model_is_described_and_baked_again(
    weights: Path, tmp_path: Path
) -> None:
    small = write_llama_gguf(tmp_path / "small", SMALL)
    baked(weights, tmp_path / "b", small, "int8-g32")
    manifest = read_manifest_of(tmp_path / "b", LanguageManifest)
    plain = baked(weights, tmp_path / "plain", None, "int8-g32")
    summary = io.StringIO()
    inspection.show_summary(tmp_path / "b", Console(file=summary, width=200))
    assert "a draft model, llama, 2 layers of width 64" in summary.getvalue()
    assert manifest.memory.slot > plain._manifest.memory.slot
    with few_entry_points():
        assert not reproduce(tmp_path / "b", weights, Silent(), drafter=small)
    with pytest.raises(BakeError, match=r"with a draft model, model.gguf; specify --drafter PATH"):
        reproduce(tmp_path / "b", weights, Silent())


@pytest.mark.parametrize("clustered", [False, True])
def test_the_assistant_of_gemma_4_drafts_as_transformers_does(
    *, clustered: bool, tmp_path: Path
) -> None:
    """After rejected drafts too, and answers have the bits of a bundle without it."""
    if clustered:
        (model, assistant), expected_drafts = write_clustered(tmp_path / "p"), IN_CLUSTERS
    else:
        model, expected_drafts = write_gemma4(tmp_path / "model"), ASSISTED
        assistant = write_assistant(tmp_path / "assistant")
    runtime = baked(model, tmp_path / "b", assistant)
    runtime.prefill(0, TEXT[: FIRST - 1], 0)
    for at in range(FIRST - 1, 100):
        list(runtime.verify(0, [TEXT[at], 5, 6], at))  # the last two are rejected
        if at + 1 in expected_drafts:
            assert drafted(runtime, 0, at + 1) == expected_drafts[at + 1]
    plain = baked(model, tmp_path / "plain", None, "int8-g32")
    expected, _ = answers(plain, None)
    runtime = baked(model, tmp_path / "int8", assistant, "int8-g32")
    assert answers(runtime, free_costs(runtime))[0] == expected
