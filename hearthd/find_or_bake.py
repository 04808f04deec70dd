"""Find the bundle of a model, or bake it: for every command that takes a model.

A model is a bundle's folder, the name of a bundle in --home, a GGUF file, a Hugging Face folder, a
model of the hub or of Ollama, or the name of a model whose weights an installed package has. What
is baked is kept in --home, and found again by a digest of its weights and of the options: see
bundle/kept_bundles.py. A bundle is found without the baker, and a bake runs in a process of its
own, which frees its memory.
"""

from __future__ import annotations

import contextlib
import difflib
import hashlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from hearthd.bundle import MANIFEST, NotABundle, bundle_home, file_type, read_manifest
from hearthd.bundle.bake_first import WEIGHTS_CONFIG
from hearthd.bundle.instead_of_weights import instead_of_weights
from hearthd.bundle.kept_bundles import Source, destination, find_kept, keep, name_of
from hearthd.bundle.parsing.gguf_header import BadGguf, require_gguf
from hearthd.bundle.parsing.shard_names import shard_name
from hearthd.bundle.projector_files import projectors_beside
from hearthd.bundle.source_digest import source_digest
from hearthd.cli import missing_baker
from hearthd.flag_names import flag
from hearthd.flags import UsageError
from hearthd.model_requirement import require_bundle, require_weights
from hearthd.runtime.system.interrupts import STATUS as INTERRUPTED
from hearthd.runtime.system.interrupts import at_interrupt, end_process
from hearthd.runtime.system.operating_system import lock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from hearthd.model_requirement import Purpose

MODEL_HELP = (
    "GGUF file (any shard of a split one), Hugging Face folder, hf:ORG/REPO[:QUANT] on the hub, "
    "ollama:NAME[:TAG] as `ollama list` shows it, or name of a model that an installed package "
    "has, which is baked first; or a bundle: its folder, or its name in --home."
)
_LOCK = ".bake-lock"


class Weights(NamedTuple):
    """Weights that are not a bundle.

    model  what `hearth bake` takes as MODEL: an absolute path, or a name
    path   the file, a shard of a split file, or the folder
    name   a readable name for the bundle
    """

    model: str
    path: Path
    name: str


def find_or_bake(
    model: str,
    home: Path | None,
    bake: Mapping[str, Any],
    *,
    purpose: Purpose = "any",
    name: str | None = None,
    meanwhile: Callable[[], None] = lambda: None,
) -> Path:
    """The folder of a model's bundle, which is baked into `home` if it is not there.

    What is baked was not compared with NumPy: see LaterVerification.

    `home` is None for $HEARTH_HOME. `bake` has the typed texts of options of the bake, which a
    bundle does not take. A bake of a model that is not for the `purpose` ends before it has read
    the weights. `name` is of a bundle that is baked; None: the name of the weights.
    `meanwhile` is called while a bake runs, which takes seconds.

    Raises NotABundle if there is no such model, it is not for the purpose, or the baker is missing;
    a usage error for the options; SystemExit if the bake fails.
    """
    found = find(model, home, bake)
    if isinstance(found, Weights):
        weights = found

        def check() -> None:
            require_weights(weights.path, model, purpose)

        named = weights if name is None else weights._replace(name=name)
        with needs_baker():
            return _find_or_bake(named, _home(home), bake, check, meanwhile)
    require_bundle(found, model, purpose)
    return found


def find(model: str, home: Path | None, bake: Mapping[str, Any]) -> Path | Weights:
    """The folder of a model's bundle, or its weights if they are not baked yet.

    Arguments and errors as in find_or_bake. Bakes nothing.
    """
    folder = bundle_home.find_bundle(model, home)
    if bundle_home.is_bundle(folder):
        if not bake:
            return folder
        weights = _instead_of_bundle(model, flag(next(iter(bake))))
    else:
        weights = _weights(model, folder, home, images=bake.get("mmproj") != "none")
    with needs_baker():
        return _kept(_home(home), weights, bake) or weights


def _kept(home: Path, weights: Weights, bake: Mapping[str, Any]) -> Path | None:
    """The bundle that was baked with these options, or by default with the same precision."""
    if kept := find_kept(home, _source(weights, bake)):
        return kept
    others = {name: text for name, text in bake.items() if name != "precision"}
    if others == bake or (kept := find_kept(home, _source(weights, others))) is None:
        return None
    return kept if read_manifest(kept).precision == bake["precision"] else None


@contextlib.contextmanager
def needs_baker(purpose: str = "") -> Iterator[None]:
    """Raise NotABundle if a package of the baker is missing in the block.

    `purpose` is the beginning of the message.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise NotABundle(f"{purpose}{missing_baker(error)}") from error


def _home(home: Path | None) -> Path:
    return bundle_home.home() if home is None else bundle_home.expanded(home)


def _instead_of_bundle(model: str, option: str) -> Weights:
    """The weights of an installed package that a bundle has the name of; or a usage error."""
    if not Path(model).exists():
        with contextlib.suppress(NotABundle):
            if (packaged := _packaged(model)) is not None:
                return packaged
    raise UsageError(
        f"{option}: {model} is a bundle, which is baked already; omit the option, or give the "
        "weights in place of the bundle."
    )


def _weights(model: str, folder: Path, home: Path | None, *, images: bool) -> Weights:
    """The weights that a text names; raises NotABundle. `folder` is no bundle; see `pulled`."""
    if not folder.exists():
        from hearthd.baker.hub.reference import is_reference  # not on every device
        from hearthd.baker.weights.ollama_store import is_stored

        if is_reference(model):
            folder = _pulled(model, images=images)
        elif is_stored(model):
            return _stored(model)
    if not folder.exists():
        bundle_home.require_link_target(folder)
        return _named(model, folder, home)
    if not (folder.is_file() or folder.is_dir()):
        raise NotABundle(f"{folder}: not a bundle: got {file_type(folder)}, expected a file")
    if folder.is_dir() and not (folder / WEIGHTS_CONFIG).is_file():
        reason = (
            f"{folder}: not a bundle: it has no {MANIFEST}, nor the {WEIGHTS_CONFIG} of weights"
        )
        raise NotABundle(f"{reason}; {instead_of_weights(folder)}")
    if folder.is_file():
        try:
            require_gguf(folder)
        except BadGguf as error:
            raise NotABundle(str(error)) from error
    path = Path(os.path.abspath(folder))  # noqa: PTH100  (keeps symbolic links)
    shard = shard_name(path.name)
    return Weights(str(path), path, shard.model if shard else name_of(path))


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


def _stored(model: str) -> Weights:
    """Weights that Ollama downloaded; raises NotABundle."""
    with needs_baker():
        from hearthd.baker.weights.ollama_store import find_stored
        from hearthd.baker.weights.source import NoWeights
    try:
        stored = find_stored(model)
    except NoWeights as error:
        raise NotABundle(str(error)) from error
    return Weights(str(stored.path), stored.path, stored.name)


def _named(model: str, folder: Path, home: Path | None) -> Weights:
    """The weights of an installed package for a name; raises NotABundle, which says what it is."""
    from hearthd.baker.hub.reference import suggestion

    missing = f"{model}: not a bundle: there is no such path"
    if meant := suggestion(model):
        raise NotABundle(f"{missing}{meant}")
    similar = bundle_home.similar_path(folder)
    if len(folder.parts) > 1 or folder.suffix == ".gguf":  # a path, and not a name
        raise NotABundle(f"{missing}{similar or '; check its spelling and the current folder'}")
    with needs_baker(f"{bundle_home.unknown_bundle(folder, home)}; to bake a model by its name: "):
        if (packaged := _packaged(model)) is not None:
            return packaged
        if similar:
            raise NotABundle(f"{missing}{similar}")
        names = ", ".join(_similar_names(model.lower(), home))
    raise NotABundle(
        f"{missing}, and no bundle of this name in {_home(home)}; specify a GGUF file, a Hugging "
        f"Face folder, hf:ORG/REPO, ollama:NAME, or one of: {names}"
    )


def _packaged(model: str) -> Weights | None:
    """The weights of an installed package for a name; None if the name is not a model's.

    Raises NotABundle if it is one, but no package has weights; ModuleNotFoundError without the
    baker.
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
    from hearthd.baker.pipeline.recipe import recipes

    packaged = {name for name, sizes in recipes().items() if any(each.weights for each in sizes)}
    names = sorted(packaged.union(bundle_home.similar_names(model, home)))
    return difflib.get_close_matches(model, names) or names


def _source(weights: Weights, bake: Mapping[str, Any]) -> Source:
    options = _normalized(bake)
    beside = () if "mmproj" in options else projectors_beside(weights.path)
    contents = [source_digest(path) for path in (weights.path, *beside)]
    return Source(_digest(*contents, options), _digest(weights.model, options))


def _normalized(bake: Mapping[str, Any]) -> dict[str, Any]:
    """The values of the options that differ from the defaults, files as digests of their contents.

    Raises a usage error.
    """
    if not bake:
        return {}  # imports no baker
    from hearthd.baker.pipeline.bake_options import BadOption, bake_options

    try:
        options = bake_options(bake)
    except BadOption as error:
        raise UsageError(f"{error}.") from error
    return {
        name: source_digest(value) if isinstance(value, Path) and value.exists() else value
        for name, value in options.model_dump(exclude_defaults=True).items()
    }


def _words(bake: Mapping[str, Any]) -> Iterator[str]:
    """The options that differ from the defaults, for the name of a bundle; of a file, its name."""
    for name, value in _normalized(bake).items():
        path = Path(str(bake[name]))
        if isinstance(value, str):
            yield f"{name}-{name_of(path)}" if path.exists() else value
        else:
            yield f"{name}{value}"


def _digest(*values: Any) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True, default=str).encode()).hexdigest()


@contextlib.contextmanager
def _bake_lock(home: Path, on_wait: Callable[[], None]) -> Iterator[None]:
    """Wait until no other process bakes into the folder, and keep others waiting in the block.

    `on_wait` is called if it has to wait. On a file system without locks, it does not.
    """
    try:
        home.mkdir(parents=True, exist_ok=True)
        opened = (home / _LOCK).open("w")
    except OSError as error:
        raise NotABundle(
            f"--home: {home} cannot keep bundles: {error.strerror}; name another folder"
        ) from error
    with opened as file:
        try:
            lock(file.fileno())
        except BlockingIOError:
            on_wait()
            lock(file.fileno(), wait=True)
        except OSError:
            pass
        yield


def _find_or_bake(
    weights: Weights,
    home: Path,
    bake: Mapping[str, Any],
    check: Callable[[], None],
    meanwhile: Callable[[], None],
) -> Path:
    """Bake weights, unless another process did so in the meantime.

    `check` may refuse them while the bake starts, which takes it a second.
    """
    with _bake_lock(home, lambda: _note(f"waits for another bake into {home}")):
        source = _source(weights, bake)
        if kept := find_kept(home, source):
            check()
            return kept
        folder = destination(home, "-".join([weights.name, *_words(bake)]), source)

        def beside() -> None:
            check()
            _note(f"bakes {weights.model} to {folder}, once")
            meanwhile()

        _bake(weights.model, folder, bake, beside)
        keep(home, source, folder)
        return folder


def _bake(model: str, out: Path, bake: Mapping[str, Any], beside: Callable[[], None]) -> None:
    """Run `hearth bake`, which ends with this process; raises SystemExit if it fails.

    `beside` is called meanwhile; an exception ends the bake.
    """
    from hearthd.baker.compiler.child_process import child_process

    flags = [word for name, text in bake.items() for word in (flag(name), str(text))]
    command = [
        sys.executable,
        "-P",
        "-m",
        "hearthd",
        "bake",
        "--verify-later",
        "--out",
        str(out),
        *flags,
        "--",
        model,
    ]
    # Its progress is on stderr. Standard output is the command's.
    with (
        child_process(command, stdout=subprocess.DEVNULL) as child,
        at_interrupt(lambda: _end_with(child)),
    ):
        beside()
        status = child.wait()
    if status < 0:
        raise NotABundle(
            f"{model}: the bake was killed by {signal.Signals(-status).name}; if memory is full, "
            "bake on another machine, with --target"
        )
    if status:
        raise SystemExit(status)


def _end_with(bake: subprocess.Popen[bytes]) -> NoReturn:
    """End the bake, which says that it was interrupted, and this process."""
    end_process(bake, signal.SIGTERM)  # background jobs of a shell ignore SIGINT
    os._exit(INTERRUPTED)


def _note(text: str) -> None:
    print(f"hearth: {text}", file=sys.stderr, flush=True)  # noqa: T201
