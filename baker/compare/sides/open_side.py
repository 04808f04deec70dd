"""Open a side by the name that the command line gives."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urldefrag

from hearthd.baker.compare.sides.endpoint import Endpoint, client_of
from hearthd.baker.compare.sides.llama_cpp import EXACT, LlamaCpp
from hearthd.baker.compare.sides.recording import read_recording
from hearthd.baker.compare.sides.side import (
    ALL,
    SLOT,
    BundleSide,
    LlamaSide,
    RecordedSide,
    SideDescription,
    SideError,
)
from hearthd.baker.compare.sides.vocabulary import BundleVocabulary
from hearthd.baker.reference.numpy_runtime import open_reference
from hearthd.bundle import LanguageManifest, bundle_home, digest, read_manifest_of
from hearthd.bundle.lora.adapter_factors import read_factors
from hearthd.runtime.open_bundle import open_bundle

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hearthd.baker.compare.sides.side import Side
    from hearthd.baker.compare.sides.vocabulary import Vocabulary

NUMPY = "numpy:"
EXACT_LOGITS = "exact:"
ADAPTER = "+"
_DIGEST = 16  # characters of a digest in a report
_PLACE = 1  # of the adapter
FORMS = (
    "a bundle's folder or name, exact:BUNDLE, MODEL.gguf, one of them with +ADAPTER, numpy:BUNDLE, "
    "RECORDING.json or the URL of an endpoint (http://HOST:PORT/v1#MODEL)"
)


@dataclass(frozen=True, kw_only=True)
class SideOptions:
    """How to open a side.

    threads        of a model in this process; None: all available CPUs
    llama_context  positions that llama.cpp allocates
    top            the number of top tokens to request from an endpoint
    vocabulary     of the tokens of an endpoint
    key            the API key of an endpoint
    """

    threads: int | None
    llama_context: int
    top: int
    vocabulary: Vocabulary | None
    key: str | None


def vocabulary_of(name: str) -> Vocabulary | None:
    """The vocabulary of a side that is a bundle, without opening the model; else None."""
    path, _ = _model_and_adapter(name.removeprefix(NUMPY).removeprefix(EXACT_LOGITS))
    return BundleVocabulary.of(path) if path.is_dir() else None


def is_endpoint(name: str) -> bool:
    """Whether the name of a side is a URL."""
    return name.startswith(("http://", "https://"))


@contextlib.contextmanager
def opened(name: str, options: SideOptions) -> Iterator[Side]:
    """Open the side with this name while the block runs.

    Raises SideError, LlamaError, RecordingError, BadAdapter, a BundleError or OSError.
    """
    if is_endpoint(name):
        with client_of(urldefrag(name).url, options.key) as client:
            yield Endpoint(name, client, options.vocabulary, top=options.top)
    elif name.startswith(NUMPY):
        yield _numpy(name)
    elif name.endswith(".json"):
        yield _recorded(name)
    elif (model := _model_and_adapter(name.removeprefix(EXACT_LOGITS))[0]).is_dir():
        yield _bundle(name, options.threads)
    elif model.suffix == ".gguf":
        with contextlib.closing(_llama(name, options)) as llama:
            yield LlamaSide(llama, _about_llama(name, llama))
    else:
        names = ", ".join(bundle_home.similar_names(model.name)) or "none"
        raise SideError(f"{name}: cannot be compared; expected {FORMS}; bundles by name: {names}")


def _model_and_adapter(name: str) -> tuple[Path, Path | None]:
    """The paths in `MODEL+ADAPTER`, or in `MODEL`, whose name may have a + too."""
    model, plus, adapter = name.rpartition(ADAPTER)
    path = bundle_home.find_baked(name)
    if not plus or path.exists():
        return path, None
    return bundle_home.find_baked(model), Path(adapter)


def _bundle(name: str, threads: int | None) -> BundleSide:
    bundle, adapter = _model_and_adapter(name.removeprefix(EXACT_LOGITS))
    manifest, runtime = open_bundle(bundle, threads=threads)
    details = _details(manifest)
    if adapter is not None:
        if not manifest.adapters.count:
            raise SideError(f"{bundle} has no places for adapters; bake it again with --adapters")
        factors = read_factors(adapter, manifest.adapters)
        runtime.write_adapter(_PLACE, factors.arrays)
        runtime.set_adapter(SLOT, _PLACE, factors.scale)
        details["adapter"] = f"{adapter.name}, {factors.digest.hex()[:_DIGEST]}"
    about = SideDescription(side_type="bundle", name=name, gives=ALL, details=details)
    exact = name.startswith(EXACT_LOGITS)
    return BundleSide(runtime, about, BundleVocabulary.of(bundle), exact=exact)


def _numpy(name: str) -> BundleSide:
    bundle = bundle_home.named_bundle(name.removeprefix(NUMPY))
    manifest = read_manifest_of(bundle, LanguageManifest)
    about = SideDescription(side_type="numpy", name=name, gives=ALL, details=_details(manifest))
    return BundleSide(open_reference(bundle, manifest), about, BundleVocabulary.of(bundle))


def _details(manifest: LanguageManifest) -> dict[str, str]:
    return {
        "architecture": manifest.architecture,
        "precision": manifest.precision,
        "target": manifest.target.name,
        "digest": digest(manifest)[:_DIGEST],
        "weights": ", ".join(source.name for source in manifest.provenance.sources),
    }


def _llama(name: str, options: SideOptions) -> LlamaCpp:
    model, adapter = _model_and_adapter(name)
    context, threads = options.llama_context, options.threads
    llama = LlamaCpp(model, context=context, threads=threads, profile=EXACT)
    if adapter is not None:
        llama.use_adapter(llama.load_adapter(adapter))
    return llama


def _about_llama(name: str, llama: LlamaCpp) -> SideDescription:
    engine = f"llama-cpp-python {llama.version}, CPU, KV cache in f32, flash attention off"
    return SideDescription(side_type="llama.cpp", name=name, gives=ALL, details={"engine": engine})


def _recorded(name: str) -> RecordedSide:
    recording = read_recording(Path(name))
    counts = {len(best.token_ids) for case in recording.cases for best in case.best}
    gives = f"the top {min(counts)} tokens of its own answers"
    about = SideDescription(
        side_type="recording", name=name, gives=gives, details=dict(recording.meta)
    )
    return RecordedSide(recording, about)
