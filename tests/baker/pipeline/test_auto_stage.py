"""`--precision auto` with bits for each part of the layers, up to the bundle."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from typing_extensions import override

from examples.train_tiny_gemma import CONFIG, END, initial
from hearthd.baker.atomic_folder import BakeError
from hearthd.baker.calibration.calibration_text import calibration_text, sequences
from hearthd.baker.checks.reproduction import reproduce
from hearthd.baker.compare.measurement.position_metrics import kl_divergence
from hearthd.baker.compare.sides.prediction import FullPrediction
from hearthd.baker.pipeline.bake import bake, resolve
from hearthd.baker.pipeline.language_plan import LanguagePlan
from hearthd.baker.pipeline.opened_model import OpenedModel
from hearthd.baker.pipeline.recipe import RecipeError
from hearthd.baker.pipeline.shared_stages import weights_bytes
from hearthd.baker.pipeline.stages import auto_stage
from hearthd.baker.pipeline.stages.auto_stage import AutoStage, Chosen
from hearthd.baker.pipeline.stages.calibration_stage import Calibration
from hearthd.baker.precision.kl_from_f32 import Meter, beginnings
from hearthd.baker.reference.numpy_runtime import traced
from hearthd.baker.tokenizer.tokenizer_files import read_tokenizer
from hearthd.baker.weights.open_weights import open_weights
from hearthd.bundle import CALIBRATION, LanguageManifest, read_manifest_of
from hearthd.models.catalog import ARCHITECTURES
from hearthd.models.families.gemma3 import Gemma3
from hearthd.runtime.language_model import IreeRuntime
from tests.baker.pipeline.test_native import QuantizedWeights
from tests.baker.small_gemma import small_gemma
from tests.conftest import Silent, few_entry_points, options_for
from tests.models.families.gemma3.gemma3_cases import GROUPED, TOKENS
from tests.models.families.gemma3.gemma3_reference import forward

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path
    from typing import TypeAlias

    from numpy.typing import NDArray

    from hearthd.baker.calibration.calibrated_layers import CalibratedLayers
    from hearthd.baker.parameters.parameter_writer import StoredRows
    from hearthd.bundle import Activations
    from hearthd.models.dsl.storage import Storage

    Choose: TypeAlias = Callable[..., tuple[Chosen, int]]

PARTS = 2 * 5  # of two layers: query, key and value; output; gate; up; down


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("auto")


@pytest.fixture(scope="module")
def weights(folder: Path) -> Path:
    return small_gemma(folder / "weights", CONFIG)


def plan_for(out: Path, **options: Any) -> LanguagePlan:
    """The plan of `--precision auto` for a target with AVX-512 and few entry points."""
    given = {"precision": "auto", "target": "x86_64-avx512vnni", "slots": 1, **options}
    plan = resolve(options_for(out, **given))
    assert isinstance(plan, LanguagePlan)
    return replace(plan, program=replace(plan.program, prefill_tokens=(32,)))


def choice_of(plan: LanguagePlan, calibration: Calibration) -> Chosen:
    assert plan.auto is not None
    return AutoStage(plan, plan.auto, calibration, Silent()).choose()


@pytest.fixture(scope="module")
def model(weights: Path) -> OpenedModel:
    return OpenedModel(open_weights(weights), ARCHITECTURES["gemma3"], CONFIG)


@pytest.fixture(scope="module")
def calibration(model: OpenedModel, folder: Path) -> Calibration:
    def read() -> NDArray[np.int32]:
        return sequences(calibration_text(None), model.tokenizer.tokenizer, END, 256)[:4]

    return Calibration(model.source, model.architecture, CONFIG, read, folder, Silent())


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the tests of one model compute what a precision predicts once."""
    logits = Meter._logits

    def remembered(
        meter: Meter,
        precision: str,
        activations: Activations,
        assigned: Mapping[str, str],
        rounded: Mapping[str, StoredRows],
    ) -> list[NDArray[np.float32]]:
        key = (id(meter.source), precision, activations, *sorted(assigned.items()), *rounded)
        if key not in _predicted:
            _predicted[key] = logits(meter, precision, activations, assigned, rounded)
        return _predicted[key]

    monkeypatch.setattr(Meter, "_logits", remembered)


_predicted: dict[Any, list[NDArray[np.float32]]] = {}


@pytest.fixture
def chosen(
    weights: Path,
    model: OpenedModel,
    calibration: Calibration,
    tmp_path: Path,
    measured: None,  # noqa: ARG001
) -> Choose:
    """What is chosen for small_gemma within limits, and the bytes of its weights."""

    def choose(**limits: Any) -> tuple[Chosen, int]:
        plan = replace(plan_for(tmp_path / "bundle", weights=weights, **limits), model=model)
        choice = choice_of(plan, calibration)
        last = choice.tried[-1].precision
        program = model.program(replace(plan.program, precision=last, storages=choice.storages))
        return choice, weights_bytes(program.weights)

    return choose


def precisions(choice: Chosen) -> list[str]:
    """The precisions that were tried; those with activations of int8 end in a8."""
    return [f"{one.precision}{' a8' * (one.activations == 'int8')}" for one in choice.tried]


@pytest.mark.nightly
def test_the_fewest_bits_within_the_divergence_are_chosen(chosen: Choose) -> None:
    sizes = []
    for limit, in_bits in ((1.0, {4}), (0.006, {4, 5})):
        choice, size = chosen(max_kl=limit)
        *tried, last = choice.tried
        assert (last.precision, last.refused) == ("mixed", None)
        assert precisions(choice)[:3] == ["native", "int8-g32", "int8-g32 a8"]
        assert all(one.refused for one in tried)
        assert last.kl is not None
        assert last.kl <= limit
        assert {int(storage[3]) for storage in choice.storages.values()} >= in_bits
        sizes.append(size)
    assert sizes[0] < sizes[1]


@pytest.mark.nightly
def test_without_a_mix_within_the_divergence_a_whole_precision_is_chosen(chosen: Choose) -> None:
    choice, _ = chosen(max_kl=0.00016)
    assert choice.storages == {}
    assert precisions(choice)[0] == "native"
    assert precisions(choice)[-1] == "int8-g32"
    choice, _ = chosen(max_kl=1e-5)
    assert precisions(choice) == ["native", "int8-g32", "int12-g32 a8", "int12-g32"]


@pytest.mark.nightly
def test_activations_have_eight_bits_within_the_divergence_unless_asked(chosen: Choose) -> None:
    choice, _ = chosen(max_kl=1.0)
    assert precisions(choice) == ["native", "int8-g32", "int8-g32 a8", "mixed a8"]
    *_, exact, rounded, mixed = choice.tried
    assert exact.kl is not None
    assert rounded.kl is not None
    assert rounded.kl > 1.2 * exact.kl
    assert mixed.text.startswith("mixed with activations of int8: mean KL divergence")
    choice, _ = chosen(max_kl=(exact.kl + rounded.kl) / 2)
    assert "int8-g32 a8" in precisions(choice)[:-1]
    assert choice.tried[-1].activations == "int16"
    choice, _ = chosen(max_kl=1.0, activations="int16")
    assert precisions(choice) == ["native", "int8-g32", "mixed"]


@pytest.mark.nightly
def test_the_least_divergence_within_the_bytes_is_chosen(chosen: Choose) -> None:
    divergences = []
    for limit in (70_000, 80_000):
        choice, size = chosen(max_bytes=limit)
        assert precisions(choice)[-1] == "mixed"
        assert 0.9 * limit < size <= limit
        divergences.append(choice.tried[-1].kl or 0.0)
    assert divergences == sorted(divergences, reverse=True)
    choice, size = chosen(max_bytes=150_000)
    assert (precisions(choice)[-1], choice.storages) == ("int12-g32", {})
    with pytest.raises(BakeError, match=r"at least 0\.1 MB, and 0\.1 MB were given"):
        chosen(max_bytes=40_000)


@pytest.mark.nightly
def test_a_matrix_keeps_the_few_bits_that_a_file_has_of_it(
    tmp_path: Path, weights: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others get 4 bits, within a limit that allows it."""
    monkeypatch.setattr(OpenedModel, "tokenizer", None)  # which these weights lack
    monkeypatch.setattr(auto_stage, "beginnings", lambda _: [tuple(TOKENS[:32])])
    source = QuantizedWeights()
    model = OpenedModel(source, ARCHITECTURES["gemma3"], GROUPED)
    native = model.storages("native")
    plan = replace(plan_for(tmp_path / "bundle", weights=weights, max_kl=10.0), model=model)

    def read() -> NDArray[np.int32]:
        return np.array([TOKENS[:32]], np.int32)

    asked = []

    class Recording(Calibration):
        @override
        def rounded(self, storages: Mapping[str, Storage]) -> CalibratedLayers:
            asked.append(set(storages))
            return super().rounded(storages)

    calibration = Recording(source, model.architecture, GROUPED, read, tmp_path, Silent())
    choice = choice_of(plan, calibration)
    assert precisions(choice) == ["native", "native a8", "mixed a8"]
    kept = {name for name, storage in native.items() if storage.startswith("int4")}
    layers = {name for name in source.parameters if name.startswith("layers.")}
    matrices = {name for name in layers if source.parameters[name].ndim == 2}
    assert 0 < len(kept & matrices) < len(matrices)
    for name in matrices:
        assert choice.storages[name] == (native[name] if name in kept else "int4-g32")
    assert asked == [matrices - kept] * len(asked)


@pytest.mark.slow
@pytest.mark.nightly
def test_a_mixed_bundle_predicts_what_was_measured(tmp_path: Path, weights: Path) -> None:
    text = tmp_path / "days.txt"
    text.write_text("after monday comes tuesday. " * 40)
    options = options_for(
        tmp_path / "bundle", weights=weights, precision="auto", max_kl=0.004, slots=1,
        calibration=text,
    )  # fmt: skip
    with few_entry_points():
        bundle = bake(options, Silent())
        assert reproduce(bundle, weights, Silent()) == []
    assert (bundle / CALIBRATION).read_text() == text.read_text()
    manifest = read_manifest_of(bundle, LanguageManifest)
    stored = [one for one in traced(manifest).weights if {*one.sources} & {*manifest.storages}]
    assert 0 < len(stored) <= PARTS
    assert manifest.activations == manifest.provenance.tried[-1].activations == "int8"
    assert any(name.endswith("_a8") for name in manifest.provenance.kernels.names)
    assert all(
        manifest.storages[name] == one.storage.name for one in stored for name in one.sources
    )
    runtime = IreeRuntime(bundle, manifest, threads=1)
    exact, divergences = initial(Gemma3(CONFIG).parameters(), seed=0), []
    for tokens in beginnings(read_tokenizer(open_weights(weights), vocab_size=CONFIG.vocab_size)):
        expected = forward(CONFIG, exact, list(tokens))
        for start in range(0, len(tokens), 4):
            rows = runtime.verify(0, tokens[start : start + 4], start)
            divergences += [
                kl_divergence(p.probabilities, p.logprobs, FullPrediction(row).logprobs)
                for p, row in zip(map(FullPrediction, expected[start:]), rows, strict=False)
            ]
    measured = manifest.provenance.tried[-1]
    assert len(divergences) == measured.positions
    assert np.mean(divergences) == pytest.approx(measured.kl, rel=0.1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"precision": "bf16", "max_bytes": 1 << 20}, "--max-bytes needs --precision auto"),
        ({"precision": "bf16", "max_kl": 1.0}, "--max-kl needs --precision auto"),
    ],
)
def test_an_impossible_request_is_rejected_in_one_sentence(
    tmp_path: Path, weights: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(RecipeError, match=message) as error:
        bake(options_for(tmp_path / "bundle", weights=weights, **options), Silent())
    assert "\n" not in str(error.value)
