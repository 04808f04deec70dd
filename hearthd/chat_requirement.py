"""Models that cannot chat are refused before they are baked, by every command that chats."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from hearthd.bundle import CHAT_TEMPLATE, LanguageManifest, NotABundle, read_manifest

if TYPE_CHECKING:
    from pathlib import Path


def require_chat_bundle(folder: Path, model: str) -> None:
    """Raise NotABundle unless the bundle has a language model with a chat template.

    `model` is the argument of the command, for the message.
    """
    manifest = read_manifest(folder)
    if not isinstance(manifest, LanguageManifest):
        raise _no_chat(model)
    if all(record.name != CHAT_TEMPLATE for record in manifest.files):
        raise _no_template(model)


def require_chat_weights(path: Path, model: str) -> None:
    """Raise NotABundle unless the weights belong to a language model with a chat template."""
    from hearthd.baker.pipeline.weights_config import opened
    from hearthd.baker.tokenizer.tokenizer_files import chat_template
    from hearthd.baker.weights.source import WeightsError

    source, family = opened(path)
    if not family.is_language_model:
        raise _no_chat(model)
    try:
        template = chat_template(source)
    except WeightsError as error:
        raise NotABundle(str(error)) from error
    if template is None:
        raise _no_template(model)


def _no_chat(model: str) -> NotABundle:
    return NotABundle(
        f"{model}: not a language model, which a chat needs: use `hearth serve "
        f"{shlex.quote(model)}`, or an instruct model, such as smollm2"
    )


def _no_template(model: str) -> NotABundle:
    return NotABundle(
        f"{model}: a base model, which continues text and does not chat (it has no chat template): "
        f"use `hearth generate {shlex.quote(model)} PROMPT`, or an instruct model, such as smollm2"
    )
