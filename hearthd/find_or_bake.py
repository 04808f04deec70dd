"""Find the bundle of a model, or bake it: for every command that takes a model.

A model is a bundle's folder, the name of a bundle in --home, a GGUF file, a Hugging Face folder, a
model of the hub or of Ollama, a Modelfile, or the name of a model whose weights an installed
package has. What is baked is kept in --home, and found again by a digest of its weights and of the
options: see bundle/kept_bundles.py. A bundle is found without the baker, and a bake runs in a
process of its own, which frees its memory.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from hearthd.bundle import NO_PRESET, NotABundle, bundle_home, read_manifest
from hearthd.bundle.kept_bundles import Source, destination, find_kept, keep, name_of
from hearthd.bundle.projector_files import projectors_beside
from hearthd.bundle.source_digest import source_digest
from hearthd.flag_names import flag
from hearthd.flags import UsageError
from hearthd.model_requirement import require_bundle, require_weights
from hearthd.model_weights import Weights, named_weights, needs_baker, packaged
from hearthd.runtime.system.interrupts import STATUS as INTERRUPTED
from hearthd.runtime.system.interrupts import at_interrupt, end_process
from hearthd.runtime.system.operating_system import lock
from hearthd.text.control_characters import print_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from hearthd.baker.pipeline.bake_options import BakeOptions
    from hearthd.model_requirement import Purpose

MODEL_HELP = (
    "GGUF file (any shard of a split one) or the folder of one, Hugging Face folder, "
    "hf:ORG/REPO[:QUANT] on the hub, ollama:NAME[:TAG] as `ollama list` shows it, a Modelfile of "
    "Ollama, or name of a model that an installed package has, which is baked first; or a bundle: "
    "its folder, or its name in --home."
)
_LOCK = ".bake-lock"


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
            return _find_or_bake(named, bundle_home.home(home), bake, check, meanwhile)
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
        if bake:
            with needs_baker():
                _options(bake)  # a wrong option is reported before a download
        weights = named_weights(model, folder, home, images=bake.get("mmproj") != "none")
    with needs_baker():
        return _kept(bundle_home.home(home), weights, bake) or weights


def _kept(home: Path, weights: Weights, bake: Mapping[str, Any]) -> Path | None:
    """The bundle that was baked with these options, or by default with the same precision."""
    if kept := find_kept(home, _source(weights, bake)):
        return kept
    others = {name: text for name, text in bake.items() if name != "precision"}
    if others == bake or (kept := find_kept(home, _source(weights, others))) is None:
        return None
    return kept if read_manifest(kept).precision == bake["precision"] else None


def _instead_of_bundle(model: str, option: str) -> Weights:
    """The weights of an installed package that a bundle has the name of; or a usage error."""
    if not Path(model).exists():
        with contextlib.suppress(NotABundle):
            if (weights := packaged(model)) is not None:
                return weights
    raise UsageError(
        f"{option}: {model} is a bundle, which is baked already; omit the option, or give the "
        "weights in place of the bundle."
    )


def _source(weights: Weights, bake: Mapping[str, Any]) -> Source:
    options = _normalized(bake)
    beside = () if "mmproj" in options else projectors_beside(weights.path)
    contents = [source_digest(path) for path in (weights.path, *beside, *weights.others)]
    settings = [] if weights.preset == NO_PRESET else [asdict(weights.preset)]
    return Source(_digest(*contents, options, *settings), _digest(weights.model, options))


def _normalized(bake: Mapping[str, Any]) -> dict[str, Any]:
    """The values of the options that differ from the defaults, files as digests of their contents.

    Raises a usage error.
    """
    if not bake:
        return {}  # imports no baker
    return {
        name: source_digest(value) if isinstance(value, Path) and value.exists() else value
        for name, value in _options(bake).model_dump(exclude_defaults=True).items()
    }


def _options(bake: Mapping[str, Any]) -> BakeOptions:
    """The options, whose files exist; raises a usage error."""
    from hearthd.baker.hub.typed_options import typed_options
    from hearthd.baker.pipeline.bake_options import BadOption

    try:
        return typed_options(bake)
    except BadOption as error:
        raise UsageError(f"{error}.") from error


def _words(bake: Mapping[str, Any]) -> Iterator[str]:
    """The options that differ from the defaults, for the name of a bundle; of a file, its name."""
    for name, value in _normalized(bake).items():
        path = bundle_home.expanded(Path(str(bake[name])))
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

    `check` may refuse them before it waits, or while the bake starts, which takes it a second.
    """

    def waits() -> None:
        check()
        _note(f"waits for another bake into {home}")

    with _bake_lock(home, waits):
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
    import safetensors  # noqa: F401  (without the baker, only this command says so)

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
    print_line(f"hearth: {text}", to_stderr=True)
