"""Words that are typed in place of a command: commands of other programs, models and files."""

from __future__ import annotations

import shlex
from pathlib import Path

PREFIXES = (
    "hf:",
    "hf.co/",
    "ollama:",
    "https://",
)  # of models that `hearth run` downloads or finds
# Commands of Ollama, and other words for commands of Hearth that are not spelled like them.
_COMMANDS = {
    "inspect": ("show", "info"),
    "bake": ("convert", "quantize", "import"),
    "bake Modelfile --out NAME": ("create",),
    "rm": ("delete", "remove"),
    "pull": ("download", "get"),
    "list": ("models", "ls"),
    "serve": ("start", "server"),
    "generate": ("complete",),
    "ps": ("status",),
    "run MODEL": ("-m",),
    "run hf:ORG/REPO": ("-hf",),
    "--version": ("version", "-v"),
}
# What to do where no command does it.
_ADVICE = {
    "Ctrl-C ends `hearth serve`, POST /models/unload unloads a model, and `hearth serve "
    "--idle-timeout SECONDS` unloads a model that is not used": ("stop", "unload"),
    "POST /api/copy of a server copies a model; without a server, copy the folder of the bundle, "
    "which `hearth list` names": ("cp", "copy"),
    "Hearth uploads nothing; copy the folder of the bundle to the other machine": (
        *("push", "upload", "login", "signin", "signout"),
    ),
    "Start `hearth serve`, and give the client its address": ("launch",),
    "Use `pip install --upgrade hearthd`, in the environment of Hearth": ("update", "upgrade"),
}


def instead_of(word: str) -> str | None:
    """What to do in place of a word that is not a command, in a sentence; None if not known."""
    for command, others in _COMMANDS.items():
        if word in others:
            return f"Use `hearth {command}`."
    for advice, others in _ADVICE.items():
        if word in others:
            return f"{advice}."
    if not word.startswith("-") and (Path(word).exists() or word.startswith(PREFIXES)):
        return f"Use `hearth run {shlex.quote(word)}`."
    return None
