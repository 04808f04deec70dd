"""Hearth: bake a language model once, ahead of time, and serve it on the device.

    import hearthd

    with hearthd.load("gemma3-270m") as model:
        print(model.generate("The capital of France is", max_tokens=16))

Its packages are links to the folders of the repository.
"""

from __future__ import annotations

TYPE_CHECKING = False  # `typing` takes 20 ms, in which Ctrl-C would show a traceback

if TYPE_CHECKING:
    from pathlib import Path

    from hearthd.model import Model

__all__ = ["load"]


def load(bundle: str | Path, *, threads: int | None = None) -> Model:
    """Load a bundle into this process: its folder, or a name that `hearth list` prints.

    `threads` defaults to one per physical core. Raises hearthd.bundle.BundleError, or
    hearthd.server.errors.SelfTestFailed if the program does not compute the values that NumPy
    computed in the bake.
    """
    # Imported here, so that the command line does not load the server.
    from hearthd.model import load_model

    return load_model(bundle, threads=threads)
