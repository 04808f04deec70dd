"""From what was named on the command line to a side that answers."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urldefrag

from baker.compare.sides.endpoint import Endpoint, client_of
from baker.compare.sides.llama_cpp import EXACT, LlamaCpp
from baker.compare.sides.recording import read_recording
from baker.compare.sides.side import ALL, About, LlamaSide, ReaderSide, RecordedSide, SideError
from baker.compare.sides.side_tokens import BundleVocabulary
from baker.reference.numpy_runtime import open_reference
from models.bundle import LanguageManifest, digest, read_manifest_of
from runtime.open_bundle import open_bundle

if TYPE_CHECKING:
    from collections.abc import Iterator

    from baker.compare.sides.side import Side
    from baker.compare.sides.side_tokens import Vocabulary

NUMPY = "numpy:"
EXACT_LOGITS = "exact:"
_DIGEST = 16  # characters of a bundle's digest that a report names
FORMS = (
    "a bundle's folder, exact:BUNDLE, numpy:BUNDLE, MODEL.gguf, RECORDING.json or the URL of an "
    "endpoint (http://HOST:PORT/v1#MODEL)"
)


@dataclass(frozen=True, kw_only=True)
class Opening:
    """What a side needs besides its name.

    threads     for a model in this process; None for every CPU that we may use
    longest     positions that llama.cpp makes room for
    top         how many candidates an endpoint is asked for
    vocabulary  what an endpoint's tokens are read with
    key         an endpoint's API key
    """

    threads: int | None
    longest: int
    top: int
    vocabulary: Vocabulary | None
    key: str | None


def vocabulary_of(name: str) -> Vocabulary | None:
    """The vocabulary of a side that has one without being opened: a bundle's."""
    path = Path(name.removeprefix(NUMPY).removeprefix(EXACT_LOGITS))
    return BundleVocabulary.of(path) if path.is_dir() else None


def is_endpoint(name: str) -> bool:
    """Whether a side is a server's URL."""
    return name.startswith(("http://", "https://"))


@contextlib.contextmanager
def opened(name: str, opening: Opening) -> Iterator[Side]:
    """The side of that name, as long as the block runs.

    Raises SideError, LlamaError, RecordingError, a BundleError or OSError.
    """
    if is_endpoint(name):
        with client_of(urldefrag(name).url, opening.key) as client:
            yield Endpoint(name, client, opening.vocabulary, top=opening.top)
    elif name.startswith(NUMPY):
        yield _numpy(name)
    elif name.endswith(".gguf"):
        with contextlib.closing(_llama(Path(name), opening)) as llama:
            yield LlamaSide(llama, _about_llama(name, llama))
    elif name.endswith(".json"):
        yield _recorded(name)
    elif Path(name.removeprefix(EXACT_LOGITS)).is_dir():
        yield _bundle(name, opening.threads)
    else:
        raise SideError(f"{name} is nothing that can be compared: wanted {FORMS}")


def _bundle(name: str, threads: int | None) -> ReaderSide:
    bundle = Path(name.removeprefix(EXACT_LOGITS))
    manifest, runtime = open_bundle(bundle, threads=threads)
    about = About(kind="bundle", name=name, gives=ALL, details=_details(manifest))
    exact = name.startswith(EXACT_LOGITS)
    return ReaderSide(runtime, about, BundleVocabulary.of(bundle), exact=exact)


def _numpy(name: str) -> ReaderSide:
    bundle = Path(name.removeprefix(NUMPY))
    manifest = read_manifest_of(bundle, LanguageManifest)
    about = About(kind="numpy", name=name, gives=ALL, details=_details(manifest))
    return ReaderSide(open_reference(bundle, manifest), about, BundleVocabulary.of(bundle))


def _details(manifest: LanguageManifest) -> dict[str, str]:
    return {
        "architecture": manifest.architecture,
        "precision": manifest.precision,
        "target": manifest.target.name,
        "digest": digest(manifest)[:_DIGEST],
        "weights": ", ".join(source.name for source in manifest.provenance.sources),
    }


def _llama(model: Path, opening: Opening) -> LlamaCpp:
    return LlamaCpp(model, context=opening.longest, threads=opening.threads, profile=EXACT)


def _about_llama(name: str, llama: LlamaCpp) -> About:
    engine = f"llama-cpp-python {llama.version}, CPU, KV cache in f32, flash attention off"
    return About(kind="llama.cpp", name=name, gives=ALL, details={"engine": engine})


def _recorded(name: str) -> RecordedSide:
    recording = read_recording(Path(name))
    counts = {len(best.token_ids) for case in recording.cases for best in case.best}
    gives = f"the best {min(counts)} tokens of its own answers"
    about = About(kind="recording", name=name, gives=gives, details=dict(recording.meta))
    return RecordedSide(recording, about)
