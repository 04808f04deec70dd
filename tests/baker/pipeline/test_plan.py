"""The plan of a bake: what weights are, and what follows from options and weights."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from safetensors.numpy import load_file, save_file

from hearthd.baker.pipeline import weights_config
from hearthd.baker.pipeline.bake import bake, bakeable, resolve
from hearthd.baker.pipeline.bake_options import bake_options
from hearthd.baker.pipeline.language_plan import LanguagePlan
from hearthd.baker.pipeline.recipe import RecipeError
from hearthd.baker.pipeline.weights_config import identify
from hearthd.baker.precision.auto_precision import MAX_KL
from hearthd.baker.weights.safetensors import SafetensorsSource
from hearthd.baker.weights.source import NoWeights, TokenizerError
from hearthd.bundle import NotABundle
from hearthd.models.config import ConfigError
from tests.baker.pipeline.test_weights_config import OnlyMetadata
from tests.baker.small_gemma import small_gemma
from tests.baker.small_gemma3 import small_gemma3
from tests.conftest import Silent, packaged
from tests.models.families.encoders.encoder_cases import recorded_encoder
from tests.models.presets import SMOLLM2

if TYPE_CHECKING:
    from pathlib import Path

    from hearthd.models.config import ModelConfig


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_gemma(tmp_path_factory.mktemp("plan") / "weights")


def plan_for(weights: Path | None, **options: Any) -> LanguagePlan:
    plan = resolve(bake_options({"weights": weights, **options}))
    assert isinstance(plan, LanguagePlan)
    return plan


# --- what weights are


def test_files_say_what_they_are(weights: Path, tmp_path: Path) -> None:
    assert plan_for(weights).record.model == "gemma3"
    (file,) = packaged("smollm2").files()
    plan, named = plan_for(file), plan_for(file, model="smollm2")
    assert (plan.record.model, str(plan.destination.out)) == ("smollm2", "smollm2-135m-native")
    assert (plan.record, plan.program, plan.destination) == (
        named.record,
        named.program,
        named.destination,
    )
    with pytest.raises(RecipeError, match=r"got 'llama': bake these weights with .*, not gemma3$"):
        plan_for(file, model="gemma3")
    folder = tmp_path / "encoder"
    folder.mkdir()
    recorded_encoder("embeddinggemma").write(folder)
    family = identify(SafetensorsSource(folder), None)  # its model_type is also Gemma 3's
    assert (family.name, family.architecture) == ("embeddinggemma", "gemma-embedding")


def test_a_folder_with_a_tower_is_read_with_it(tmp_path: Path) -> None:
    folder = small_gemma3(tmp_path / "weights")
    assert identify(SafetensorsSource(folder), None).architecture == "gemma3-images"
    assert identify(SafetensorsSource(folder), "gemma3").architecture == "gemma3"
    config, model = folder / "config.json", folder / "model.safetensors"
    text = config.read_text()
    config.write_text(text.replace('"vision_use_head": false', '"hidden_act": "relu"'))
    with pytest.raises(ConfigError, match="hidden_act"):  # the tower is not left out silently
        identify(SafetensorsSource(folder), None)
    config.write_text(text)
    tensors = load_file(model)
    save_file({name: tensors[name] for name in tensors if "language_model" in name}, model)
    assert identify(SafetensorsSource(folder), None).architecture == "gemma3"


@pytest.mark.parametrize(
    ("config", "name", "recipe"),
    [
        (SMOLLM2, "smollm2", "smollm2"),
        (replace(SMOLLM2, layers=16, hidden=2048), "llama3", "llama3"),
        (replace(SMOLLM2, layers=32, hidden=4096), "llama", "llama3"),  # Llama 3 8B, Mistral 7B
        (replace(SMOLLM2, layers=3), "llama", "falcon3"),
    ],
)
def test_weights_without_a_clear_family_have_the_name_of_their_architecture(
    monkeypatch: pytest.MonkeyPatch, config: ModelConfig, name: str, recipe: str
) -> None:
    monkeypatch.setattr(weights_config, "model_config", lambda *_: config)
    metadata: dict[str, object] = {"general.architecture": "llama", "llama.block_count": 2}
    source: Any = OnlyMetadata("gguf", metadata, "token_embd.weight")
    family = identify(source, None)
    assert (family.name, family.recipe, family.architecture) == (name, recipe, "llama")
    assert identify(source, "mistral").name == "mistral"


def test_without_weights_a_name_is_needed() -> None:
    with pytest.raises(RecipeError, match=r"^MODEL is missing: .*, or one of gemma3, smollm2$"):
        plan_for(None)
    for model in ("gemma2", "bert", "gru"):
        assert model in bakeable()
        with pytest.raises((RecipeError, NoWeights), match="--weights"):
            plan_for(None, model=model)


def test_a_folder_without_a_tokenizer_is_refused_before_the_bake(tmp_path: Path) -> None:
    folder = small_gemma(tmp_path / "weights")
    (folder / "tokenizer.json").unlink()
    message = f"^{folder} has no tokenizer.json; .*save_pretrained\\('{folder}'\\)$"
    with pytest.raises(TokenizerError, match=message):
        bake(bake_options({"weights": folder, "out": tmp_path / "out"}), Silent())
    with pytest.raises(NotABundle, match=message):  # of `hearth inspect` and before a chat
        weights_config.opened(folder)


def test_weights_of_no_known_architecture_are_rejected() -> None:
    metadata: dict[str, object] = {"general.architecture": "arctic", "arctic.block_count": 2}
    source: Any = OnlyMetadata("gguf", metadata, "token_embd.weight")
    with pytest.raises(ConfigError, match="got 'arctic', which is not a supported architecture; "):
        identify(source, None)


# --- what follows from options


def test_options_replace_the_defaults_of_a_recipe(weights: Path) -> None:
    plan = plan_for(weights)
    assert (plan.program.precision, plan.program.context, plan.slots) == ("int8-g32", 2048, 4)
    assert (plan.program.activations, plan.program.adapters) == ("int16", 0)
    recorded = plan.record.options
    assert (plan.auto_context, recorded["context"]) == (True, "auto")
    assert (recorded["kv_cache"], recorded["activations"], recorded["slots"]) == ("f16", "int16", 4)
    plan = plan_for(weights, precision="bf16", context=128, slots=3, kv_cache="int8", adapters=2)
    program = plan.program
    assert (program.precision, program.context, program.kv_cache) == ("bf16", 128, "int8")
    assert not plan.auto_context
    assert (program.decode_batches, program.adapters, program.adapter_rank) == ((1, 2, 3), 2, 16)
    assert plan.record.options == {
        "precision": "bf16",
        "kv_cache": "int8",
        "context": 128,
        "slots": 3,
        "adapters": 2,
        "rank": 16,
        "target": "host",
    }


def test_defaults_are_recorded_and_resolve_to_the_same_plan(weights: Path) -> None:
    for precision in ("f32", "native", "int8-g32", "int4-g32", "auto"):
        plan = plan_for(weights, precision=precision)
        again = plan_for(weights, **plan.record.options)
        assert again.record == plan.record
        if precision != "auto":
            # A cache of the precision's type may be given or not.
            kv_cache = again.program.kv_cache
            assert replace(plan.program, kv_cache=kv_cache) == again.program


def test_the_caches_are_chosen_with_the_context_where_memory_is_limited(weights: Path) -> None:
    plan = plan_for(weights, max_memory="1G")
    assert (plan.record.options["context"], plan.max_memory) == ("auto", 10**9)
    assert "kv_cache" not in plan.record.options
    assert plan_for(weights, **plan.record.options).record == plan.record
    # Nothing is open with a number, as older bundles record it.
    fixed = plan_for(weights, max_memory="1G", context=2048).record.options
    assert (fixed["context"], fixed["kv_cache"]) == (2048, "f16")


def test_auto_leaves_the_precision_open(weights: Path) -> None:
    plan = plan_for(weights, precision="auto")
    assert plan.auto is not None
    assert (plan.auto.max_kl, plan.auto.max_bytes, plan.auto.activations) == (MAX_KL, None, None)
    assert plan.record.options["max_kl"] == MAX_KL
    assert {"activations", "kv_cache", "max_bytes"}.isdisjoint(plan.record.options)
    plan = plan_for(weights, precision="auto", max_bytes="1M", activations="int8")
    assert plan.auto is not None
    assert (plan.auto.max_bytes, plan.auto.activations) == (10**6, "int8")
    assert "max_kl" not in plan.record.options


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": "360m"}, r"--size 360m: the weights have size unknown \(2 layers of width"),
        ({"context": 63}, "--context 63 is out of range: expected 64 to "),
        ({"context": 10**6}, "--context 1000000 is out of range: expected 64 to "),
        ({"steps": 2}, "--steps: gemma3 is not a GRU; omit the option"),
        ({"batch_first": True}, "--batch-first: gemma3 is not a GRU; omit the option"),
    ],
)
def test_options_that_do_not_fit_the_weights_are_rejected(
    weights: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(RecipeError, match=message):
        plan_for(weights, **options)
