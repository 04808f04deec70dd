"""Choose the projector of images for a GGUF file: the given one, or the one beside it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from hearthd.baker.pipeline.recipe import RecipeError
from hearthd.baker.pipeline.weights_config import families, families_of, identify
from hearthd.baker.weights.projected_gguf import ProjectedGguf
from hearthd.baker.weights.source import WeightsError, path_of
from hearthd.bundle.projector_files import projectors_beside
from hearthd.models.config import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from hearthd.baker.pipeline.bake_options import BakeOptions
    from hearthd.baker.weights.source import WeightSource


def with_projector(
    source: WeightSource, options: BakeOptions, note: Callable[[str], None]
) -> tuple[WeightSource, BakeOptions]:
    """The weights joined with a projector of images, and the options that name its file.

    Without a projector, both are the text model's. `note` shows which file beside the weights is
    read, or why no file is. Raises RecipeError, ConfigError or a WeightsError for a given file that
    does not fit.
    """
    if isinstance(options.mmproj, Path):
        return _joined(source, options.mmproj, options.model), options
    joined = None
    if options.mmproj is None and source.format == "gguf":
        joined = _beside(source, options.model, note)
    projector = None if joined is None else joined.projector
    return joined or source, options.model_copy(update={"mmproj": projector})


def _beside(
    source: WeightSource, model: str | None, note: Callable[[str], None]
) -> ProjectedGguf | None:
    """The weights with the only projector in their folder that fits, if there is one."""
    families_of(source)  # weights that cannot be read are the error, not their projector
    fitting: list[ProjectedGguf] = []
    reasons: list[str] = []
    for file in projectors_beside(source.files()[0]):
        try:
            fitting.append(_joined(source, file, model))
        except (ConfigError, RecipeError, WeightsError) as error:
            reasons.append(f"{file.name} is not used: {error}")
    if len(fitting) == 1:
        kinds = _read_with(fitting[0], model)
        note(f"reads {kinds} with {fitting[0].projector.name}; --mmproj none leaves it out")
        return fitting[0]
    if fitting:
        names = ", ".join(joined.projector.name for joined in fitting)
        reasons = [f"reads no images: {names} fit; choose one with --mmproj FILE"]
    for reason in reasons:
        note(reason)
    return None


def _read_with(joined: ProjectedGguf, model: str | None) -> str:
    """What weights joined with a projector read."""
    config = identify(joined, model).config
    kinds = {"images": config.image, "sound": config.sound}
    return " and ".join(kind for kind, shape in kinds.items() if shape is not None)


def _joined(source: WeightSource, file: Path, model: str | None) -> ProjectedGguf:
    """The weights with this projector; raises an error unless it fits."""
    if source.format != "gguf":
        raise RecipeError("--mmproj: a Hugging Face folder has its tower itself; omit the option")
    joined = ProjectedGguf(source, file)
    try:
        family = identify(joined, model)
    except ConfigError as error:  # of the projector, not of the model's file
        raise ConfigError(str(error).removeprefix(f"{path_of(joined)}: ")) from error
    architectures = {architecture.name: architecture for architecture in families().values()}
    if not architectures[family.architecture].tensors.towers:
        raise RecipeError(f"{family.name} reads no images; specify --mmproj none")
    return joined
