"""Which projector of images is read with a GGUF file: the given one, or the one beside it."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest
from safetensors.numpy import load_file, save_file

from hearthd.baker.pipeline.bake_options import BakeOptions, bake_options
from hearthd.baker.pipeline.image_projector import with_projector
from hearthd.baker.pipeline.opened_model import OpenedModel
from hearthd.baker.pipeline.recipe import RecipeError
from hearthd.baker.pipeline.weights_config import identify
from hearthd.baker.weights.open_weights import open_weights
from hearthd.baker.weights.projected_gguf import ProjectedGguf
from hearthd.baker.weights.source import BadFile, WeightsError
from hearthd.bundle.projector_files import projectors_beside
from hearthd.find_or_bake import _source
from hearthd.model_weights import Weights
from hearthd.models.catalog import ARCHITECTURES
from hearthd.models.config import ConfigError
from tests.baker.small_gemma3 import CONFIG, small_gemma3
from tests.baker.small_llava import CONFIG as LLAVA
from tests.baker.small_llava import small_llava
from tests.baker.small_qwen3vl import CONFIG as QWEN3VL
from tests.baker.small_qwen3vl import small_qwen3vl
from tests.baker.small_smolvlm import CONFIG as SMOLVLM
from tests.baker.small_smolvlm import small_smolvlm
from tests.models.families.gguf_files import write_gguf
from tests.models.families.gguf_projector import write_projector

if TYPE_CHECKING:
    from pathlib import Path

    from hearthd.baker.weights.source import WeightSource


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a Gemma 3 (`gemma`), a SmolVLM (`smolvlm`) and their projectors."""
    root = tmp_path_factory.mktemp("pairs")
    small: Any
    for name, small, config in (
        ("gemma3-images", small_gemma3, CONFIG),
        ("smolvlm", small_smolvlm, SMOLVLM),
    ):
        folder = small(root / name)
        write_gguf(folder, name, config)
        write_projector(folder, folder / "mmproj-f16.gguf", name, config)
    return root


@pytest.fixture
def gemma(written: Path, tmp_path: Path) -> Path:
    """A copy of the model's file and its projector."""
    for name in ("model.gguf", "mmproj-f16.gguf"):
        shutil.copy(written / "gemma3-images" / name, tmp_path / name)
    return tmp_path / "model.gguf"


def chosen(file: Path, **options: Any) -> tuple[WeightSource, BakeOptions, list[str]]:
    """The weights, the options and the notes."""
    notes: list[str] = []
    source, resolved = with_projector(open_weights(file), bake_options(options), notes.append)
    return source, resolved, notes


def test_the_only_projector_beside_a_model_is_read(gemma: Path) -> None:
    source, options, notes = chosen(gemma)
    projector = gemma.parent / "mmproj-f16.gguf"
    assert source.files() == (gemma, projector)
    assert options.mmproj == projector
    assert notes == ["reads images with mmproj-f16.gguf; --mmproj none leaves it out"]
    assert options.record("language model")["mmproj"] == "mmproj-f16.gguf"
    source, options, notes = chosen(gemma, mmproj="none")
    assert (source.files(), options.mmproj, notes) == ((gemma,), None, [])
    source, _, notes = chosen(gemma, model="gemma3")
    assert source.files() == (gemma,)
    assert notes == ["mmproj-f16.gguf is not used: gemma3 reads no images; specify --mmproj none"]


@pytest.mark.parametrize("name", ["gemma3-images", "smolvlm"])
def test_images_are_prepared_as_the_folder_says(name: str, written: Path) -> None:
    source, _, _ = chosen(written / name / "model.gguf")
    folder, architecture = open_weights(written / name), ARCHITECTURES[name]
    config = identify(source, None).config
    expected = architecture.image_input(identify(folder, None).config, folder.metadata())
    assert architecture.image_input(config, source.metadata()) == expected


def test_an_unknown_key_of_a_projector_is_refused(
    gemma: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    metadata = {**chosen(gemma)[0].metadata(), "clip.vision.feature_layer": [1]}
    monkeypatch.setattr(ProjectedGguf, "metadata", lambda _: metadata)
    with pytest.raises(ConfigError, match=r"clip\.\*: unknown key vision.feature_layer: it may"):
        chosen(gemma, mmproj=gemma.parent / "mmproj-f16.gguf")


def test_one_of_several_projectors_must_be_named(gemma: Path) -> None:
    other = gemma.parent / "MMPROJ-f32.gguf"
    shutil.copy(gemma.parent / "mmproj-f16.gguf", other)
    source, options, notes = chosen(gemma)
    assert (source.files(), options.mmproj) == ((gemma,), None)
    assert notes == [
        "reads no images: MMPROJ-f32.gguf, mmproj-f16.gguf fit; choose one with --mmproj FILE"
    ]
    assert chosen(gemma, mmproj=other)[0].files() == (gemma, other)


def test_a_projector_that_does_not_fit_is_named(gemma: Path, written: Path) -> None:
    other = gemma.parent / "mmproj-other.gguf"
    shutil.copy(written / "smolvlm" / "mmproj-f16.gguf", other)
    source, _, notes = chosen(gemma)
    assert source.files() == (gemma, gemma.parent / "mmproj-f16.gguf")
    assert notes[0].startswith("reads images with mmproj-f16.gguf")
    (gemma.parent / "mmproj-f16.gguf").unlink()
    source, _, notes = chosen(gemma)
    assert source.files() == (gemma,)
    assert notes == [
        "mmproj-other.gguf is not used: clip.projector_type: got 'idefics3', expected gemma3; "
        "specify the projector of this model with --mmproj"
    ]


def test_a_given_projector_must_fit(gemma: Path, written: Path) -> None:
    smolvlm = written / "smolvlm"
    with pytest.raises(ConfigError, match="projector_type: got 'idefics3', expected gemma3; "):
        chosen(gemma, mmproj=smolvlm / "mmproj-f16.gguf")
    with pytest.raises(BadFile, match=r"general\.architecture: got 'gemma3', expected clip; "):
        chosen(gemma, mmproj=gemma)
    with pytest.raises(RecipeError, match="gemma3 reads no images; specify --mmproj none"):
        chosen(gemma, model="gemma3", mmproj=gemma.parent / "mmproj-f16.gguf")
    with pytest.raises(RecipeError, match="--mmproj: a Hugging Face folder has its tower itself"):
        chosen(smolvlm, mmproj=smolvlm / "mmproj-f16.gguf")
    damaged = gemma.parent / "mmproj-f16.gguf"
    damaged.write_bytes(damaged.read_bytes()[:-4096])
    with pytest.raises(WeightsError, match=r"mmproj-f16\.gguf is truncated: .*; download or copy"):
        chosen(gemma, mmproj=damaged)
    with pytest.raises(ConfigError, match=r"no tower for images: specify .* gemma3, with"):
        identify(open_weights(gemma), "gemma3-images")


def test_a_projector_of_another_width_is_refused(written: Path, tmp_path: Path) -> None:
    wider, folder = tmp_path / "mmproj.gguf", written / "gemma3-images"
    small = small_gemma3(tmp_path / "other")
    tensors = load_file(small / "model.safetensors")
    name = "multi_modal_projector.mm_input_projection_weight"
    tensors[name] = tensors[name].repeat(2, axis=1)
    save_file(tensors, small / "model.safetensors")
    write_projector(small, wider, "gemma3-images", CONFIG)
    with pytest.raises(ConfigError, match="got a projection to width 128, expected 64; "):
        chosen(folder / "model.gguf", mmproj=wider)


def test_a_kept_bundle_is_of_the_projector_too(gemma: Path) -> None:
    projector = gemma.parent / "mmproj-f16.gguf"
    assert projectors_beside(gemma) == (projector,)
    assert projectors_beside(projector) == projectors_beside(gemma.parent) == ()
    weights = Weights(str(gemma), gemma, "model")
    first, without = _source(weights, {}), _source(weights, {"mmproj": "none"})
    assert first.digest != without.digest
    projector.unlink()
    assert _source(weights, {}).digest != first.digest


@pytest.mark.parametrize("special", ["<image>", "<unk>", "<|reserved_special_token_0|>"])
def test_llava_needs_no_token_for_images(special: str, tmp_path: Path) -> None:
    """Vicuna's vocabulary has none, and Llama 3's neither."""
    folder = small_llava(tmp_path / "llava")
    write_gguf(folder, "llava", LLAVA, ("<s>", "</s>", special, "<pad>"))
    write_projector(folder, folder / "mmproj.gguf", "llava", LLAVA)
    source, _, _ = chosen(folder / "model.gguf")
    architecture = ARCHITECTURES["llava"]
    images = OpenedModel(source, architecture, identify(source, None).config).images
    assert images is not None
    assert images.placeholder == special
    assert images.marker == "<image>"  # what chat templates write, as text


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("image_mean", 5, "image_mean: expected a value of type list, got 5"),
        ("image_mean", "x", "image_mean: expected a value of type list, got 'x'"),
        ("image_mean", [], r"images\.mean: got \(\), expected 3 numbers"),
        ("image_std", [0.0] * 3, "image_std: expected a number above zero"),
        ("image_std", [1.0] * 99, r"images\.std: got .*, expected 3 numbers"),
    ],
)
def test_pixels_that_no_bundle_can_have_are_refused(
    gemma: Path, key: str, value: object, message: str
) -> None:
    source = ProjectedGguf(open_weights(gemma), gemma.parent / "mmproj-f16.gguf")
    source._added._metadata = {**source._added.metadata(), f"clip.vision.{key}": value}
    model = OpenedModel(source, ARCHITECTURES["gemma3-images"], identify(source, None).config)
    with pytest.raises(ConfigError, match=f"^preprocessor_config.json: {message}"):
        _ = model.images


def test_the_weights_of_two_frames_have_one_shape(tmp_path: Path) -> None:
    folder = small_qwen3vl(tmp_path / "model")
    write_gguf(folder, "qwen3vl-images", QWEN3VL)
    path = write_projector(folder, tmp_path / "mmproj.gguf", "qwen3vl-images", QWEN3VL)
    frame = b"v.patch_embd.weight.1" + (4).to_bytes(4, "little")
    data = path.read_bytes()
    shape = data.index(frame) + len(frame)  # innermost first
    assert data[shape] > 1
    path.write_bytes(data[:shape] + b"\1" + data[shape + 1 :])
    with pytest.raises(BadFile, match=r"v\.patch_embd\.weight\.1 has shape .*, expected "):
        ProjectedGguf(open_weights(folder / "model.gguf"), path)
