"""Questions about images with drafted tokens and adapters: the answers have the bits of plain
decoding."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from hearthd.baker.adapters.adapter import write_adapter
from hearthd.baker.pipeline.bake import bake
from hearthd.bundle.lora.adapter_settings import AdapterSettings
from hearthd.models.families.smolvlm import ARCHITECTURE
from hearthd.server.services import language_service
from hearthd.server.services.engine_options import EngineOptions
from hearthd.server.services.language_service import open_language_service
from tests.baker.small_smolvlm import CONFIG, small_smolvlm
from tests.conftest import Silent, few_entry_points, options_for
from tests.e2e.media_chat import ask, question, tokens_of
from tests.server.engine.test_engine_random import free_costs
from tests.server.fakes import running

if TYPE_CHECKING:
    from pathlib import Path

    from hearthd.server.services.engine_options import Speculation

pytestmark = [pytest.mark.nightly, pytest.mark.slow]

# Images first, last and alone in a turn; a text that occurs twice can be drafted by lookup.
QUESTIONS = (
    ((100, 60), "a b c a b c a b "),
    ("Who? Who? ", (20, 50), (64, 64)),
    ((70, 70), "x" * 40),
)
PROJECTIONS = ("q_proj", "v_proj", "down_proj")


def write_lora(folder: Path) -> Path:
    factors = {}
    rng = np.random.default_rng(3)
    for name, tensor in ARCHITECTURE.model(CONFIG).parameters().items():
        module, shape = name.removesuffix(".weight"), tensor.shape
        if name.startswith("layers.") and module.rpartition(".")[2] in PROJECTIONS:
            for factor, sizes in (("lora_A", (4, shape[1])), ("lora_B", (shape[0], 4))):
                factors[f"{module}.{factor}.weight"] = rng.normal(0, 0.3, sizes).astype(np.float32)
    folder.mkdir()
    settings = AdapterSettings(rank=4, alpha=8.0, projections=PROJECTIONS)
    write_adapter(folder, settings, factors, ARCHITECTURE, CONFIG)
    return folder


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("drafted-images")
    weights = small_smolvlm(folder / "weights")
    options = options_for(
        folder / "bundle", model=None, weights=weights, precision="int8-g32", context=512,
        slots=2, drafter=weights, adapters=1, rank=4,
    )  # fmt: skip
    with few_entry_points():
        return bake(options, Silent())


def answers(bundle: Path, lora: Path, speculation: Speculation) -> tuple[list[Any], int]:
    """The tokens of each question without and with the adapter, and how many were drafted."""
    options = EngineOptions(speculation=speculation, lora={"tuned": lora})
    tokens, accepted = [], 0
    with running(open_language_service(bundle, threads=1, options=options)) as client:
        for content in QUESTIONS:
            for adapters in ([], [{"id": 0, "scale": 1.0}]):
                body = question(content, max_tokens=60, lora=adapters, ignore_eos=True)
                answer = ask(client, body)
                tokens.append(tokens_of(answer))
                accepted += answer["timings"].get("draft_n_accepted") or 0
    return tokens, accepted


def test_answers_about_images_have_the_bits_of_plain_decoding(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lora = write_lora(tmp_path / "tuned")
    expected, drafted = answers(bundle, lora, "off")
    assert drafted == 0
    assert all(plain != tuned for plain, tuned in zip(expected[::2], expected[1::2], strict=True))
    monkeypatch.setattr(language_service, "costs_of", free_costs)
    for speculation in ("lookup", "auto"):
        found, accepted = answers(bundle, lora, speculation)
        assert accepted > 0, speculation
        assert found == expected
