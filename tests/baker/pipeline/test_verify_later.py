"""`bake --verify-later`: a bundle that is compared with NumPy by `hearth verify`, as in a bake."""

from __future__ import annotations

import io
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console
from typing_extensions import override

from hearthd.baker.atomic_folder import BakeError
from hearthd.baker.checks import reproduction
from hearthd.baker.checks.verification import verify
from hearthd.baker.pipeline.bake import bake
from hearthd.baker.pipeline.shared_stages import ComparisonFailed
from hearthd.baker.signing.signers import Signer, sign
from hearthd.bundle import (
    SIGNATURE,
    LanguageManifest,
    Preset,
    bundle_home,
    known_bundles,
    read_manifest_of,
    write_manifest,
)
from hearthd.bundle.bundle_errors import BundleError
from hearthd.bundle.kept_bundles import Source, find_kept, keep
from hearthd.bundle.manifests.manifest import digest
from hearthd.runtime.language_model import IreeRuntime
from hearthd.server.services.language_service import open_language_service
from hearthd.server.terminal.session import Session
from tests.baker.small_gemma import small_gemma
from tests.conftest import Silent, few_entry_points, options_for

if TYPE_CHECKING:
    from pathlib import Path

    from hearthd.baker.pipeline.bake_options import BakeOptions
    from hearthd.baker.progress import Progress

SOURCE = Source("contents", "path")
PRESET = Preset(sampling={"top_k": 3}, system="Be terse.")
COMPUTES = "compute golden values with NumPy"


class Stages(Silent):
    """Keeps the names of stages."""

    def __init__(self) -> None:
        self.names: list[str] = []

    @override
    def stage(self, name: str, total: int = 0) -> Any:
        self.names.append(name)
        return super().stage(name, total)


@pytest.fixture(scope="module")
def baked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one bundle, `whole`, and the same one, `later`, that was not compared."""
    folder = tmp_path_factory.mktemp("later")
    weights = small_gemma(folder / "weights")
    with few_entry_points():
        for name in ("whole", "later"):
            # With one slot, test_activations.py has the same program, which is compiled once.
            options = options_for(
                folder / name, weights=weights, slots=1, verify_later=name == "later"
            )
            bake(options, stages := Stages(), PRESET)
            assert (COMPUTES in stages.names) == (name == "whole")
    return folder


@pytest.fixture
def later(baked: Path, tmp_path: Path) -> Path:
    """A copy of the bundle that was not compared."""
    return shutil.copytree(baked / "later", tmp_path / "later")


def verified(bundle: Path) -> tuple[bool, str, list[str]]:
    """Whether a bundle passes, what is printed, and the stages."""
    output, stages = io.StringIO(), Stages()
    (verdict,) = verify(bundle, Console(file=output), stages).values()
    return verdict.passed, output.getvalue(), stages.names


@pytest.mark.nightly
def test_a_later_comparison_gives_the_bytes_of_one_in_the_bake(baked: Path, later: Path) -> None:
    assert read_manifest_of(later, LanguageManifest).golden == ()
    passed, output, stages = verified(later)
    assert passed
    assert COMPUTES in stages
    assert "the self-test passed" in output
    assert {path.name: path.read_bytes() for path in later.iterdir()} == {
        path.name: path.read_bytes() for path in (baked / "whole").iterdir()
    }
    assert COMPUTES not in verified(later)[2]


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["later", "whole"])
def test_a_bundle_is_reproduced_with_the_comparison_that_it_has(
    baked: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def bake_again(options: BakeOptions, _: Progress, preset: Preset) -> None:
        assert options.out is not None
        assert preset == PRESET
        shutil.copytree(baked / ("later" if options.verify_later else "whole"), options.out)

    monkeypatch.setattr(reproduction, "bake", bake_again)
    assert reproduction.reproduce(baked / name, baked / "weights", Silent()) == []


def test_a_bundle_is_found_by_its_source_before_and_after_its_comparison(later: Path) -> None:
    keep(later.parent, SOURCE, later)
    assert find_kept(later.parent, SOURCE) == later
    assert verified(later)[0]
    assert find_kept(later.parent, SOURCE) == later
    assert read_manifest_of(later, LanguageManifest).preset == PRESET


def test_a_compared_bundle_is_known_on_this_machine(
    later: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(bundle_home.ENVIRONMENT, str(tmp_path / "home"))
    assert verified(later)[0]
    known = (tmp_path / "home" / known_bundles.FILE).read_text().split()
    assert digest(read_manifest_of(later, LanguageManifest)) in known


def test_a_bundle_can_be_served_before_its_comparison(later: Path) -> None:
    with Session(open_language_service(later)) as session:
        verdict = session.service.verdict
        assert verdict is not None
        assert (verdict.passed, verdict.level, verdict.steps) == (True, "off", 0)
    with pytest.raises(Exception, match="no golden values, which `hearth verify` computes"):
        Session(open_language_service(later, level="full")).__enter__()


def test_a_wrong_program_gets_no_golden_values(
    later: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = (later / "manifest.json").read_bytes()
    decode = IreeRuntime.decode
    monkeypatch.setattr(IreeRuntime, "decode", lambda *call, **named: decode(*call, **named) + 1)
    with pytest.raises(ComparisonFailed, match="a value differs by 1"):
        verified(later)
    assert (later / "manifest.json").read_bytes() == before


def test_a_bundle_is_not_signed_before_its_comparison(later: Path) -> None:
    with pytest.raises(BundleError, match="not compared with NumPy yet; run hearth verify"):
        sign(later, Signer())
    (later / SIGNATURE).touch()
    with pytest.raises(BakeError, match="signed without golden values"):
        verified(later)


def test_a_comparison_that_another_process_made_meanwhile_is_kept(
    baked: Path, later: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits for the other one, which has then written the manifest."""
    whole = read_manifest_of(baked / "whole", LanguageManifest)
    other = replace(whole, golden=whole.golden[:1])
    monkeypatch.setattr(
        "hearthd.baker.pipeline.stages.comparison_stage.lock",
        lambda *_, **__: write_manifest(later, other),
    )
    passed, _, stages = verified(later)
    assert passed
    assert COMPUTES not in stages
    assert read_manifest_of(later, LanguageManifest) == other
