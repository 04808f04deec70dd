"""What a bundle sets in requests that do not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hearthd.text.sampling_text import valid_parameters

if TYPE_CHECKING:
    from hearthd.bundle import LanguageManifest


def request_defaults(manifest: LanguageManifest) -> dict[str, Any]:
    """The values by the names of Ollama's options: the preset's, or what the weights recommend."""
    preset = manifest.preset
    return {**valid_parameters({**manifest.sampling, **preset.sampling}), **preset.limits}
