"""A small Whisper, baked and served: the compiled program computes what NumPy does."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import pytest

from hearthd.baker.checks.verification import verify
from hearthd.baker.hub.verdict import examine
from hearthd.baker.pipeline.bake import bake
from hearthd.baker.pipeline.bake_options import bake_options
from hearthd.baker.pipeline.recipe import RecipeError
from hearthd.baker.presentation.console import open_console
from hearthd.bundle import VMFB, SpeechManifest, read_manifest_of
from hearthd.server.services.array_service import FunctionsOptions
from hearthd.server.services.speech_service import open_speech_service
from tests.baker.small_whisper import CONTEXT, IDS, LANGUAGES, STATES, small_whisper
from tests.conftest import Silent
from tests.server.fakes import running
from tests.server.speech.listeners import NumpyListener
from tests.server.speech.speech_services import service, wav

if TYPE_CHECKING:
    from pathlib import Path

    from hearthd.server.services.speech_service import SpeechService

pytestmark = pytest.mark.slow

FORM = {"response_format": "verbose_json", "language": "en"}


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_whisper(tmp_path_factory.mktemp("speech") / "weights")


def segments(service_: SpeechService) -> list[dict[str, Any]]:
    file = {"file": ("a.wav", wav(1.0))}
    with running(service_) as client:
        answer = client.post("/v1/audio/transcriptions", files=file, data=FORM)
        assert answer.status_code == 200, answer.text
        found: list[dict[str, Any]] = answer.json()["segments"]
        return found


def test_a_baked_model_is_compared_with_numpy_and_served(weights: Path, tmp_path: Path) -> None:
    out = tmp_path / "ears"
    bundle = bake(bake_options({"weights": weights, "out": out, "precision": "int8-g32"}), Silent())
    manifest = read_manifest_of(bundle, SpeechManifest)
    assert (manifest.states, manifest.context) == (STATES, CONTEXT)
    assert examine(weights).memory == manifest.memory
    assert manifest.tokens.languages == {code: IDS[f"<|{code}|>"] for code in LANGUAGES}
    assert verify(bundle, open_console(file=io.StringIO()), Silent())[VMFB].passed
    assert examine(weights).memory == manifest.memory
    (first, *_) = segments(open_speech_service(bundle, FunctionsOptions(threads=1)))
    assert first["tokens"][0] > IDS["<|notimestamps|>"]


@pytest.mark.nightly
def test_a_baked_model_of_f32_writes_down_what_numpy_does(weights: Path, tmp_path: Path) -> None:
    options = {"weights": weights, "out": tmp_path / "ears", "precision": "f32"}
    bundle = bake(bake_options(options), Silent())
    baked = segments(open_speech_service(bundle, FunctionsOptions(threads=1)))
    expected = segments(service(NumpyListener(tmp_path / "numpy")))
    assert [each["tokens"] for each in baked] == [each["tokens"] for each in expected]


def test_other_options_are_refused(weights: Path) -> None:
    with pytest.raises(RecipeError, match="--precision"):
        bake(bake_options({"weights": weights, "precision": "int4-g32"}), Silent())
    with pytest.raises(RecipeError, match="--context"):
        bake(bake_options({"weights": weights, "context": 100}), Silent())
