"""The weights that a text names, for every command that takes a model.

They are a GGUF file, a Hugging Face folder, a model of the hub or of Ollama, a Modelfile, or the
name of a model whose weights an installed package has.
"""

from __future__ import annotations

import contextlib
import difflib
import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from hearthd.bundle import MANIFEST, NO_PRESET, NotABundle, Preset, bundle_home, file_type
from hearthd.bundle.bake_first import WEIGHTS_CONFIG
from hearthd.bundle.gguf_folder import gguf_file_in
from hearthd.bundle.instead_of_weights import instead_of_weights
from hearthd.bundle.kept_bundles import name_of
from hearthd.bundle.parsing.gguf_header import BadGguf, require_gguf
from hearthd.bundle.parsing.shard_names import shard_name
from hearthd.cli import missing_baker
from hearthd.other_commands import PREFIXES

if TYPE_CHECKING:
    from collections.abc import Iterator


class Weights(NamedTuple):
    """Weights that are not a bundle.

    model  what `hearth bake` takes as MODEL: an absolute path, or a name
    path   the file, a shard of a split file, or the folder
    name   a readable name for the bundle
    others  files of an adapter or a projector that a Modelfile or Ollama has beside it
    preset  settings of requests beside it
    """

    model: str
    path: Path
    name: str
    others: tuple[Path, ...] = ()
    preset: Preset = NO_PRESET


@contextlib.contextmanager
def needs_baker(purpose: str = "") -> Iterator[None]:
    """Raise NotABundle if a package of the baker is missing in the block.

    `purpose` is the beginning of the message.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise NotABundle(f"{purpose}{missing_baker(error)}") from error


def named_weights(model: str, folder: Path, home: Path | None, *, images: bool) -> Weights:
    """The weights that a text names; raises NotABundle. `folder` is not a bundle.

    Without `images`, the projector of a model of the hub is left out.
    """
    if not folder.exists():
        from hearthd.baker.hub.reference import is_reference  # not on every device
        from hearthd.baker.ollama.ollama_store import is_stored

        if is_reference(model):
            folder = _pulled(model, images=images)
        elif is_stored(model) and (weights := _described(model, home, images=images)):
            return weights
    if not folder.exists():
        bundle_home.require_link_target(folder)
        return _named(model, folder, home)
    if not (folder.is_file() or folder.is_dir()):
        raise NotABundle(f"{folder}: not a bundle: got {file_type(folder)}, expected a file")
    folder = gguf_file_in(folder)
    if folder.is_dir() and not (folder / WEIGHTS_CONFIG).is_file():
        reason = (
            f"{folder}: not a bundle: it has no {MANIFEST}, nor the {WEIGHTS_CONFIG} of weights"
        )
        raise NotABundle(f"{reason}; {instead_of_weights(folder)}")
    path = Path(os.path.abspath(folder))  # noqa: PTH100  (keeps symbolic links)
    if folder.is_file():
        try:
            require_gguf(folder)
        except BadGguf as error:
            if weights := _described(str(path), home, images=images):
                return weights
            raise NotABundle(str(error)) from error
    shard = shard_name(path.name)
    return Weights(str(path), path, shard.model if shard else name_of(path))


def is_elsewhere(text: str) -> bool:
    """Whether a text names a model of the hub or of Ollama."""
    return text.startswith(PREFIXES)


def is_prompt(text: str, home: Path | None) -> bool:
    """Whether the text in place of a model is a prompt: it names no model, and resembles no name.

    Raises NotABundle if the baker is missing, which knows names of models.
    """
    try:
        folder = bundle_home.find_bundle(text, home)
    except NotABundle:  # empty, or too long for a path
        return True
    if folder.exists() or bundle_home.similar_path(folder):
        return False
    from hearthd.baker.hub.reference import suggestion  # not on every device

    if text.startswith(PREFIXES) or suggestion(text) or Path(text).suffix == ".gguf":
        return False
    if any(character.isspace() for character in text):
        return True
    with needs_baker(f"{bundle_home.unknown_bundle(folder, home)}; to bake a model by its name: "):
        from hearthd.baker.pipeline.recipe import recipes

        names = [*recipes(), *bundle_home.similar_names(text, home)]
    return len(folder.parts) == 1 and not difflib.get_close_matches(text.lower(), names)


def _pulled(reference: str, *, images: bool) -> Path:
    """Weights of the hub, in its cache; raises NotABundle."""
    with needs_baker():
        from hearthd.baker.hub.hub_errors import HubError
        from hearthd.baker.hub.reference import BadReference
        from hearthd.hub_weights import pulled
    try:
        return pulled(reference, images=images)
    except (BadReference, HubError) as error:
        raise NotABundle(str(error)) from error


def _described(model: str, home: Path | None, *, images: bool) -> Weights | None:
    """The weights of a Modelfile or of a model of Ollama; None for another text.

    Raises NotABundle.
    """
    with needs_baker():
        from hearthd.baker.ollama.modelfile import described
        from hearthd.baker.weights.source import NoWeights
    try:
        about = described(model)
    except NoWeights as error:
        raise NotABundle(str(error)) from error
    if about is None:
        return None
    weights = named_weights(about.base, Path(about.base), home, images=images)
    others = tuple(about.files.values())
    return weights._replace(model=model, name=about.name, others=others, preset=about.preset)


def _stored_suggestion(model: str) -> str:
    """The end of an error for the name of a model that Ollama has; empty for another text."""
    from hearthd.baker.ollama.ollama_store import PREFIX, find_stored
    from hearthd.baker.weights.source import NoWeights

    with contextlib.suppress(NoWeights):
        find_stored(f"{PREFIX}{model}")
        return f"; did you mean {PREFIX}{model}?"
    return ""


def _named(model: str, folder: Path, home: Path | None) -> Weights:
    """The weights of an installed package for a name; raises NotABundle."""
    from hearthd.baker.hub.reference import suggestion

    missing = f"{model}: not a bundle: there is no such path"
    similar = bundle_home.similar_path(folder)
    if meant := suggestion(model):
        raise NotABundle(f"{missing}{_stored_suggestion(model) or similar or meant}")
    if len(folder.parts) > 1 or folder.suffix == ".gguf":  # a path, and not a name
        raise NotABundle(f"{missing}{similar or '; check its spelling and the current folder'}")
    with needs_baker(f"{bundle_home.unknown_bundle(folder, home)}; to bake a model by its name: "):
        if (found := packaged(model)) is not None:
            return found
        if meant := _stored_suggestion(model) or similar:
            raise NotABundle(f"{missing}{meant}")
        names = ", ".join(_similar_names(model.lower(), home))
    raise NotABundle(
        f"{missing}, and no bundle of this name in {bundle_home.home(home)}; specify a GGUF file, "
        f"a Hugging Face folder, hf:ORG/REPO, ollama:NAME, or one of: {names}"
    )


def packaged(model: str) -> Weights | None:
    """The weights of an installed package for a name; None if the name is not a model's.

    Raises NotABundle if it is the name of a model and no installed package has its weights;
    ModuleNotFoundError without the baker.
    """
    from hearthd.baker.pipeline.recipe import packaged_weights, recipes
    from hearthd.baker.weights.open_weights import packaged_file
    from hearthd.baker.weights.source import WeightsError

    if model not in recipes():
        return None
    try:
        return Weights(model, packaged_file(packaged_weights(model)), model)
    except WeightsError as error:
        raise NotABundle(
            f"{model}: {error}; specify a GGUF file, a Hugging Face folder or hf:ORG/REPO in "
            "place of the name"
        ) from error


def _similar_names(model: str, home: Path | None) -> list[str]:
    """The bundles and the models with packaged weights whose names are similar, or all of them."""
    from hearthd.baker.pipeline.recipe import packaged_names

    names = sorted({*packaged_names(), *bundle_home.similar_names(model, home)})
    return bundle_home.similar(model, names)
