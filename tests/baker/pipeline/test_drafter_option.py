"""What drafts tokens in a bundle: `--drafter`, or by default the layer that the weights have."""

from __future__ import annotations

from pathlib import Path

import pytest

from hearthd.baker.pipeline.bake import resolve
from hearthd.baker.pipeline.bake_options import bake_options, recorded_options
from hearthd.baker.pipeline.language_plan import LanguagePlan
from hearthd.bundle import DRAFTER
from hearthd.models.decoder.drafting.mtp import MtpConfig
from tests.baker.small_gemma import small_gemma
from tests.e2e.test_drafter import HEAD, write_drafter
from tests.models.families.mtp_models import CONFIGS, write_mtp_model


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_mtp_model(tmp_path_factory.mktemp("mtp") / "weights")


def planned(weights: Path, drafter: Path | str | None) -> tuple[bool, int, bool]:
    """Whether the plan has the layer of the weights, how many tokens are drafted, and the file."""
    plan = resolve(bake_options({"weights": weights, "drafter": drafter}))
    assert isinstance(plan, LanguagePlan)
    assert isinstance(plan.model.config, MtpConfig)
    assert plan.program.verify_tokens == ((2, 4) if plan.program.draft_tokens else (4,))
    return plan.model.config.mtp, plan.program.draft_tokens, plan.drafter is not None


def test_the_layer_of_the_weights_drafts_unless_the_option_says_otherwise(
    weights: Path, tmp_path: Path
) -> None:
    tuned = write_drafter(tmp_path / "drafter", CONFIGS["qwen35"]["hidden_size"])
    assert planned(weights, None) == (True, 257, False)
    assert planned(weights, "none") == (False, 0, False)
    assert planned(weights, tuned) == (False, len(HEAD), True)


def test_eight_tokens_are_verified_where_no_layer_keeps_states(tmp_path: Path) -> None:
    weights, drafter = small_gemma(tmp_path / "weights"), write_drafter(tmp_path / "drafter")
    sizes = []
    for used in (drafter, "none"):
        plan = resolve(bake_options({"weights": weights, "drafter": used}))
        assert isinstance(plan, LanguagePlan)
        sizes.append(plan.program.verify_tokens)
    assert sizes == [(2, 4, 8), (4,)]


@pytest.mark.parametrize(("slots", "tokens"), [(1, 0), (2, 2)])
def test_two_sequences_are_verified_together_where_there_are_two_slots(
    slots: int, tokens: int, tmp_path: Path
) -> None:
    plan = resolve(bake_options({"weights": small_gemma(tmp_path / "weights"), "slots": slots}))
    assert isinstance(plan, LanguagePlan)
    assert plan.program.pair_tokens == tokens


def test_a_bundle_without_a_drafter_is_reproduced_without_one() -> None:
    bundle = Path("bundle")
    assert recorded_options({"drafter": "none"}, bundle) == {"drafter": "none"}
    assert recorded_options({"drafter": DRAFTER}, bundle) == {"drafter": bundle / DRAFTER}
