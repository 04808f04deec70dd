"""`hearth bake`, also called `bake`. It knows what to print; baker.pipeline does the work."""

import contextlib
import gc
import shlex
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from hearthd import flags
from hearthd.baker.atomic_folder import BakeError
from hearthd.baker.checks import inspection
from hearthd.baker.hub.reference import BadReference, is_reference, suggestion
from hearthd.baker.hub.typed_options import typed_options
from hearthd.baker.ollama.described_model import DescribedModel
from hearthd.baker.ollama.modelfile import described
from hearthd.baker.pipeline.bake import bake, bakeable, named_models
from hearthd.baker.pipeline.bake_errors import BAKE_ERRORS
from hearthd.baker.pipeline.bake_options import BadOption, BakeOptions, bake_options
from hearthd.baker.pipeline.encoder_recipe import encoder_recipes
from hearthd.baker.pipeline.kinds.bake_gru import GRU
from hearthd.baker.pipeline.recipe import recipes
from hearthd.baker.presentation.console import open_console
from hearthd.baker.progress import TerminalProgress
from hearthd.bundle import LanguageManifest, bundle_home, read_manifest
from hearthd.text.control_characters import print_line

# Exceptions that end the command, and its exit code: see hearthd/cli.py.
ERRORS: dict[type[Exception], int] = {BadOption: 2, **dict.fromkeys(BAKE_ERRORS, 1)}
_Model = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="GGUF file (any shard of a split one) or the folder of one; Hugging Face folder; "
        "hf:ORG/REPO[:QUANT] on the hub; ollama:NAME[:TAG] as `ollama list` shows it; a Modelfile "
        "of Ollama; or the name of a model, whose weights an installed package or --weights has.",
        show_default=False,
    ),
]
# The entry point whose fusions are shown: it reads one token of one sequence.
_DECODE = "decode_1"


def _families() -> Iterator[str]:
    """The names of models with what is baked by default, one per line."""
    width = max(map(len, (*recipes(), *encoder_recipes(), GRU))) + 2
    for name, sizes in recipes().items():
        defaults = sizes[0].defaults
        yield (
            f"{name:{width}}--precision {defaults.precision} --slots {defaults.slots} "
            f"({', '.join(recipe.size for recipe in sizes)})"
        )
    for name, encoder in encoder_recipes().items():
        context = encoder.lengths[-1]
        yield f"{name:{width}}--precision {encoder.precision} --context {context} (encoder)"
    yield f"{GRU:{width}}array functions; needs --weights"


_EPILOG = "\n\n".join(
    (
        "Models, with their defaults and sizes. The weights of a size may need --weights. An "
        "encoder embeds texts or scores pairs of them. `native` is int8-g32 for weights that are "
        "not quantized.",
        "\b\n" + "\n".join(_families()),
        "Examples:",
        "\b\n    hearth bake gemma3 --out gemma3-270m\n    hearth bake model.gguf --context 4096\n"
        "    hearth bake Qwen3-0.6B/ --target aarch64 --max-memory 1GiB --precision auto\n"
        "    hearth bake gru --weights gru.safetensors --steps 16 --out gru",
    )
)

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command(cls=flags.GroupedOptions, no_args_is_help=True, epilog=_EPILOG)
@flags.takes(BakeOptions, leave_out=frozenset({"model"}))
def _bake(
    model: _Model,
    *,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Print kernels and fused ops at the end.")
    ] = False,
    **options: Any,
) -> None:
    """Compile a model and its weights into a bundle.

    The bundle is a folder that `hearth serve`, `generate` and `chat` load without a compiler. Bake
    it on any machine, for the machine named by --target.

    A file says what it is. With a name, weights of another model are rejected.
    """
    about = described(model) or DescribedModel(base=model, name=model)
    model = about.base
    given = {**about.files, **flags.typed_values(BakeOptions, options)}
    named = {"weights": model} if is_reference(model) else _model(model)
    if "weights" in named and "weights" in given:
        raise BadOption(
            f"--weights: got {given['weights']!r}, but MODEL names the weights, {model}; omit one"
        )
    typed_options(given)  # a wrong option is reported before a download
    drafter = str(given.get("drafter", ""))
    if is_reference(model) and is_reference(drafter):
        _require_on_hub(drafter)
    if is_reference(model):
        named = {"weights": _downloaded(model, images=given.get("mmproj") != "none")}
    if is_reference(drafter):
        given["drafter"] = _downloaded(drafter, images=False, drafts=True)
    chosen = bake_options(named | given)
    console = open_console(stderr=True)
    start = time.perf_counter()
    # Imported objects live until the end, so the garbage collector need not search them.
    gc.freeze()
    progress = TerminalProgress(console)
    for note in about.notes:
        progress.note(note)
    _show(bake(chosen, progress, about.preset), start, verbose=verbose)


def _model(argument: str) -> dict[str, Any]:
    """The options that MODEL sets; raises BadOption if it is not a name and does not exist.

    Raises NotABundle for a symbolic link to nothing, or a text that cannot be a path.
    """
    if argument in bakeable():
        return {"model": argument}
    path = bundle_home.typed_path(argument)
    if path.exists():
        return {"weights": str(path)}
    if bundle_home.is_bundle(bundle := bundle_home.find_bundle(argument)):
        raise BadOption(
            f"MODEL: {bundle} is a bundle, which is baked already: `hearth serve` opens it"
        )
    bundle_home.require_link_target(path)
    raise BadOption(
        f"MODEL: got {argument!r}, expected a GGUF file, a Hugging Face folder, hf:ORG/REPO, "
        f"ollama:NAME, or one of {named_models(argument)}"
        f"{bundle_home.similar_path(path) or suggestion(argument)}"
    )


def _downloaded(reference: str, *, images: bool, drafts: bool = False) -> Path:
    """Weights of the hub, of a drafter with `drafts`, whether this machine can serve them or not.

    Raises BadOption, BakeError or OSError.
    """
    from hearthd.baker.hub.download import download  # needs the extra `hub`

    progress = TerminalProgress(open_console(stderr=True))
    with _hub_errors("--drafter" if drafts else "MODEL"):
        return download(reference, progress, force=True, images=images, drafts=drafts)


def _require_on_hub(drafter: str) -> None:
    """Raise BadOption or BakeError if the hub does not have the files of a drafter."""
    from hearthd.baker.hub.download import require_files  # needs the extra `hub`

    with _hub_errors("--drafter"):
        require_files(drafter)


@contextlib.contextmanager
def _hub_errors(argument: str) -> Iterator[None]:
    """Raise the hub's errors as BadOption or BakeError; `argument` has the reference."""
    from hearthd.baker.hub.hub_errors import HubError  # needs the extra `hub`

    try:
        yield
    except BadReference as error:
        raise BadOption(f"{argument}: {error}") from error
    except HubError as error:
        raise BakeError(str(error)) from error


def _show(path: Path, start: float, *, verbose: bool) -> None:
    """Print what was baked; `start` is when the bake began."""
    manifest = read_manifest(path)
    provenance = manifest.provenance
    for tried in provenance.tried:
        print_line(tried.text)
    if verbose or provenance.kernels.instructions == "portable":  # which is slow
        print_line(f"kernels: {provenance.kernels.text}")
    if verbose and manifest.other_programs:
        print_line(f"programs: {', '.join(program.text for program in manifest.programs)}")
    if verbose and isinstance(manifest, LanguageManifest):
        print_line(f"fused: {inspection.fusions_text(manifest, _DECODE)}")
    size = sum(file.stat().st_size for file in path.iterdir())
    print_line(f"{path}: {size / 1e6:.1f} MB in {time.perf_counter() - start:.0f} s")
    print_line(f"next: hearth serve {shlex.quote(str(path))}")
