"""Where a text that names weights becomes a local path. It imports no package of the baker."""

from __future__ import annotations

from hearthd.bundle import NotABundle

HUB = "hf:"


def local_weights(text: str) -> str:
    """The path of weights that are named by a path, or by hf:ORG/REPO[:QUANT].

    Raises NotABundle for a text that starts with hf:, since nothing is downloaded yet.
    """
    if text.startswith(HUB):
        raise NotABundle(
            f"{text}: models of a hub are not downloaded; download a GGUF file, or a Hugging Face "
            "folder, and give its path"
        )
    return text
