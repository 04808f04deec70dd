"""Models that a command cannot use are refused before they are baked."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Literal, TypeAlias

from hearthd.bundle import CHAT_TEMPLATE, LanguageManifest, NotABundle, read_manifest

if TYPE_CHECKING:
    from pathlib import Path

# What a command needs: any model, one that generates text, or one that chats.
Purpose: TypeAlias = Literal["any", "text", "chat"]


def require_bundle(folder: Path, model: str, purpose: Purpose) -> None:
    """Raise NotABundle unless the bundle has a model for the purpose.

    `model` is the argument of the command, for the message.
    """
    if purpose == "any":
        return
    manifest = read_manifest(folder)
    if not isinstance(manifest, LanguageManifest):
        raise _no_text(model, purpose)
    if purpose == "chat" and all(record.name != CHAT_TEMPLATE for record in manifest.files):
        raise _no_template(model)


def require_weights(path: Path, model: str, purpose: Purpose) -> None:
    """As `require_bundle`, of weights; reads no tensor."""
    if purpose == "any":
        return
    from hearthd.baker.pipeline.weights_config import opened
    from hearthd.baker.tokenizer.tokenizer_files import chat_template
    from hearthd.baker.weights.source import WeightsError

    source, family = opened(path)
    if not family.is_language_model:
        raise _no_text(model, purpose)
    if purpose == "text":
        return
    try:
        template = chat_template(source)
    except WeightsError as error:
        raise NotABundle(str(error)) from error
    if template is None:
        raise _no_template(model)


def _no_text(model: str, purpose: Purpose) -> NotABundle:
    needs, instead = {
        "text": ("the generation of text", "a language model"),
        "chat": ("a chat", "an instruct model"),
    }[purpose]
    return NotABundle(
        f"{model}: not a language model, which {needs} needs: use `hearth serve "
        f"{shlex.quote(model)}`, or {instead}, such as smollm2"
    )


def _no_template(model: str) -> NotABundle:
    return NotABundle(
        f"{model}: a base model, which continues text and does not chat (it has no chat template): "
        f"use `hearth generate {shlex.quote(model)} PROMPT`, or an instruct model, such as smollm2"
    )
