"""Adapters in PEFT's format: what PEFT has written is read and merged, and ours is the same."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from typing_extensions import override

from hearthd.baker.adapters.adapter import read_adapter, write_adapter
from hearthd.baker.adapters.merged_weights import MergedWeights
from hearthd.baker.weights.source import BadFile, NoWeights, UnsupportedType, WeightSource
from hearthd.bundle.lora.adapter_folder import TENSORS, LowRank
from hearthd.bundle.lora.adapter_settings import CONFIG
from hearthd.bundle.parsing.head_rows import half_after_half
from hearthd.models.catalog import ARCHITECTURES
from tests.baker.adapters.peft_case import CASE, FOLDER, MERGED, settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    Tensors = dict[str, NDArray[Any]]

ARCHITECTURE = ARCHITECTURES[CASE.architecture]
QUERY = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"


class Arrays(WeightSource):
    """Tensors in memory, which are read in blocks of five rows."""

    def __init__(self, format_: Any, tensors: Mapping[str, NDArray[np.float32]]) -> None:
        self._format, self._tensors = format_, tensors

    @property
    @override
    def format(self) -> Any:
        return self._format

    @override
    def names(self) -> tuple[str, ...]:
        return tuple(self._tensors)

    @override
    def shape(self, name: str) -> tuple[int, ...]:
        return self._tensors[name].shape

    @override
    def dtype(self, name: str) -> str:
        return "Q8_0"

    @override
    def blocks(self, name: str) -> Iterator[NDArray[np.float32]]:
        array = self._tensors[name]
        return (array[at : at + 5] for at in range(0, len(array), 5))

    @override
    def files(self) -> tuple[Path, ...]:
        return ()

    @override
    def require_unchanged(self) -> None:
        pass

    @override
    def metadata(self) -> Mapping[str, object]:
        return {}


def stored(*, gguf: bool) -> dict[str, NDArray[np.float32]]:
    """The weights of the case as a file has them."""
    tensors = {}
    for name, array in CASE.weights().items():
        place = ARCHITECTURE.tensors.find(CASE.config, name, (), gguf=gguf)
        tensors[place.name] = array - np.float32(place.offset)
    return tensors


def test_an_adapter_of_peft_is_merged_into_the_matrices_that_peft_merges() -> None:
    terms = read_adapter(FOLDER, ARCHITECTURE, CASE.config)
    merged = MergedWeights(
        Arrays("safetensors", stored(gguf=False)), terms, ARCHITECTURE, CASE.config
    )
    expected = np.load(MERGED)
    assert len(expected.files) == 7 * CASE.config.layers
    for name in expected.files:
        np.testing.assert_allclose(merged.read(name), expected[name], rtol=0, atol=1e-6)
        assert merged.dtype(name) == "f32"
        with pytest.raises(UnsupportedType):
            merged.integer_blocks(name)
    untouched = "model.embed_tokens.weight"
    assert merged.dtype(untouched) == "Q8_0"
    np.testing.assert_array_equal(merged.read(untouched), stored(gguf=False)[untouched])


def test_rows_in_the_order_of_llama_cpp_are_merged_in_this_order() -> None:
    llama = ARCHITECTURES["llama"]
    config: Any = type("Heads", (), {"head_dim": 8})()
    rng = np.random.default_rng(0)
    base, b, a = (rng.normal(size=shape).astype("f4") for shape in ((24, 6), (24, 2), (2, 6)))
    name = llama.tensors.find(config, "layers.0.self_attn.q_proj.weight", (), gguf=True).name
    terms = {"layers.0.self_attn.q_proj.weight": LowRank(a=a, b=b, scale=0.5)}
    merged = MergedWeights(Arrays("gguf", {name: base}), terms, llama, config)
    np.testing.assert_allclose(
        half_after_half(merged.read(name), 8), half_after_half(base, 8) + 0.5 * b @ a, atol=1e-6
    )


def test_rows_that_folders_have_in_turn_are_so_in_adapters(tmp_path: Path) -> None:
    """As in GGUF files: a head's first row is beside the first row of its second half."""
    ernie, rank = ARCHITECTURES["ernie4_5"], settings().rank
    config: Any = ernie.config(
        layers=1, hidden=6, ffn=6, heads=3, kv_heads=1, head_dim=8, vocab_size=6, max_context=8,
        norm_eps=1e-6, rope_base=1e4, tied=True,
    )  # fmt: skip
    rng = np.random.default_rng(0)
    base, b, a = (rng.normal(size=n).astype("f4") for n in ((24, 6), (24, rank), (rank, 6)))
    module = "layers.0.self_attn.q_proj"
    factors = {f"{module}.lora_A.weight": a, f"{module}.lora_B.weight": b}
    write_adapter(tmp_path, settings(), factors, ernie, config)
    written = load_file(tmp_path / TENSORS)
    name = f"base_model.model.model.{module}.lora_B.weight"
    np.testing.assert_array_equal(half_after_half(written[name], 8), b)
    terms = read_adapter(tmp_path, ernie, config)
    np.testing.assert_array_equal(terms[f"{module}.weight"].b, b)
    tensor = f"model.{module}.weight"
    merged = MergedWeights(Arrays("safetensors", {tensor: base}), terms, ernie, config)
    scale = terms[f"{module}.weight"].scale
    np.testing.assert_allclose(
        half_after_half(merged.read(tensor), 8), half_after_half(base, 8) + scale * b @ a, atol=1e-6
    )


def test_ours_has_the_tensors_and_the_options_of_peft(tmp_path: Path) -> None:
    write_adapter(tmp_path, settings(), CASE.initial(), ARCHITECTURE, CASE.config)
    ours, theirs = (load_file(folder / TENSORS) for folder in (tmp_path, FOLDER))
    assert ours.keys() == theirs.keys()
    for name in theirs:
        np.testing.assert_array_equal(ours[name], theirs[name])
    options, expected = (json.loads((folder / CONFIG).read_text()) for folder in (tmp_path, FOLDER))
    for one in (options, expected):
        one["target_modules"] = sorted(one["target_modules"])
        del one["base_model_name_or_path"]
    assert options.items() <= expected.items()
    assert sorted(path.name for path in tmp_path.iterdir()) == [CONFIG, TENSORS]


def test_rank_stabilized_adapters_have_their_scale(tmp_path: Path) -> None:
    def change(config: dict[str, Any], _: Tensors) -> None:
        config["use_rslora"] = True

    folder = changed(tmp_path, change)
    terms = read_adapter(folder, ARCHITECTURE, CASE.config)
    assert {term.scale for term in terms.values()} == {CASE.lora.alpha / CASE.lora.rank**0.5}


def changed(tmp_path: Path, change: Callable[[dict[str, Any], Tensors], None]) -> Path:
    """PEFT's adapter after a change."""
    folder = tmp_path / "adapter"
    shutil.copytree(FOLDER, folder)
    config, tensors = json.loads((folder / CONFIG).read_text()), load_file(folder / TENSORS)
    change(config, tensors)
    (folder / CONFIG).write_text(json.dumps(config))
    save_file(tensors, folder / TENSORS)
    return folder


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda config, _: config.update(use_dora=True), "use_dora: got True, expected False"),
        (lambda config, _: config.update(use_rslora="true"), "use_rslora: got 'true'"),
        (lambda config, _: config.update(rank_pattern={"q_proj": 2}), "rank_pattern: got"),
        (lambda config, _: config.update(trainable_token_indices=[1]), "trainable_token_indices"),
        (lambda config, _: config.update(kasa_config={"beta": 1.0}), "kasa_config: got"),
        (lambda config, _: config.update(use_new=True), "unknown option use_new: it may change"),
        (lambda config, _: config.update(peft_type="IA3"), "peft_type: got 'IA3', expected 'LORA'"),
        (
            lambda config, _: config.update(r=8),
            r"down_proj.*has shape \(4, 40\), expected \(8, 40\)",
        ),
        (lambda config, _: config.update(r="8"), "r: got '8', expected a rank"),
        (lambda config, _: config.pop("lora_alpha"), "lora_alpha: got None, expected a number"),
        (lambda _, tensors: tensors.pop(QUERY), "q_proj.lora_A.weight is missing"),
        (lambda _, tensors: tensors[QUERY].fill(np.nan), "values that are not finite"),
        (lambda _, tensors: tensors.clear(), "has no tensors"),
        (
            lambda _, tensors: tensors.update(x=np.zeros(3, "f4")),
            "tensor x does not fit any matrix of this model",
        ),
    ],
)
def test_an_adapter_that_would_compute_something_else_is_rejected(
    change: Callable[[dict[str, Any], Tensors], None], message: str, tmp_path: Path
) -> None:
    with pytest.raises(BadFile, match=message):
        read_adapter(changed(tmp_path, change), ARCHITECTURE, CASE.config)


@pytest.mark.parametrize(
    "initialization",
    ["pissa", "pissa_niter_16", "olora", "OLoRA", "corda", "loftq", "lora_ga", "an unknown one"],
)
def test_an_adapter_for_changed_weights_is_rejected(initialization: str, tmp_path: Path) -> None:
    """PEFT subtracts the first B A from the weights, which the files do not contain."""

    def change(config: dict[str, Any], _: Tensors) -> None:
        config["init_lora_weights"] = initialization

    message = f"init_lora_weights: got '{initialization}', which changes the weights.*; save"
    with pytest.raises(BadFile, match=message):
        read_adapter(changed(tmp_path, change), ARCHITECTURE, CASE.config)


@pytest.mark.parametrize(
    "options",
    [
        {"init_lora_weights": "gaussian"},
        {"init_lora_weights": "eva", "eva_config": {"rho": 2.0}},
        {"init_lora_weights": "orthogonal"},
        {"init_lora_weights": "mica"},
        {"init_lora_weights": False, "loftq_config": {"loftq_bits": 4}},
        {"layers_to_transform": [0], "exclude_modules": "lm_head", "lora_dropout": 0.1},
        {"a_later_option": None, "another_one": False},
    ],
)
def test_options_that_change_no_result_are_accepted(
    options: dict[str, Any], tmp_path: Path
) -> None:
    folder = changed(tmp_path, lambda config, _: config.update(options))
    assert read_adapter(folder, ARCHITECTURE, CASE.config)


def test_a_truncated_file_and_a_folder_without_adapter_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(NoWeights, match=f"has no {CONFIG}; specify a folder"):
        read_adapter(tmp_path, ARCHITECTURE, CASE.config)
    folder = changed(tmp_path, lambda *_: None)
    path = folder / TENSORS
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(BadFile, match="not a complete safetensors file"):
        read_adapter(folder, ARCHITECTURE, CASE.config)
