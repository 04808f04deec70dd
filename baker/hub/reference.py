"""References to models on the Hugging Face Hub: `hf:ORG/REPO`, with a quantization or a file."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from typing_extensions import override

PREFIX = "hf:"
_LINK = re.compile(r"(?:https?://)?(?:www\.)?(?:huggingface\.co|hf\.co)/")
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*", re.ASCII)
_ON_HUB = re.compile(rf"{_NAME.pattern}/{_NAME.pattern}(:{_NAME.pattern})?", re.ASCII)
_IN_OLLAMA = re.compile(rf"{_NAME.pattern}:{_NAME.pattern}", re.ASCII)
# What follows the repository in a link: its files, or one file, at a revision.
_VIEWS = ("tree", "blob", "resolve")
_EXPECTED = (
    "expected hf:ORG/REPO, hf:ORG/REPO:QUANT such as hf:ORG/REPO:Q4_K_M, hf:ORG/REPO/FILE.gguf, "
    "or a link to a model on huggingface.co"
)


class BadReference(Exception):
    """A reference to a model is not valid; the message has the forms that are."""


@dataclass(frozen=True, kw_only=True)
class Reference:
    """A model on the hub.

    repository  as ORG/REPO
    quant       quantization of a GGUF file, as its name has it, such as Q4_K_M; None: the default
    file        path of a GGUF file in the repository; None: chosen by `quant`
    revision    branch, tag or commit
    """

    repository: str
    quant: str | None = None
    file: str | None = None
    revision: str = "main"

    @override
    def __str__(self) -> str:
        if self.file is not None:
            return f"{PREFIX}{self.repository}/{self.file}"
        return f"{PREFIX}{self.repository}" + (f":{self.quant}" if self.quant else "")


def is_reference(text: str) -> bool:
    """Whether a text is meant as a reference, and not as a path or the name of a model."""
    return text.startswith(PREFIX) or _LINK.match(text) is not None


def suggestion(text: str) -> str:
    """The end of an error for a text that names no model: what it was probably meant as."""
    if text.startswith("file://") or text.rpartition("/")[2] == "Modelfile":
        return "; check its spelling and the current folder"
    if "://" in text:
        return "; download the file and give its path, or give hf:ORG/REPO for huggingface.co"
    if _ON_HUB.fullmatch(text) and not text.endswith(".gguf"):
        return f"; for a model on huggingface.co, give {PREFIX}{text}"
    if _IN_OLLAMA.fullmatch(text):
        return (
            f"; for a model that Ollama has downloaded, give ollama:{text}, and for a model on "
            f"huggingface.co {PREFIX}ORG/REPO"
        )
    return ""


def parse_reference(text: str) -> Reference:
    """Read a reference; raises BadReference."""
    if text.startswith(PREFIX):
        path, revision = text.removeprefix(PREFIX).removeprefix("//"), None
    elif link := _LINK.match(text):
        path, revision = _of_link(unquote(urlsplit(text[link.end() :]).path))
    else:
        raise _bad(text)
    path, colon, quant = path.partition(":")
    organization, _, rest = path.partition("/")
    name, _, file = rest.partition("/")
    named = all(_NAME.fullmatch(part) for part in (organization, name))
    if not named or (colon and not (_NAME.fullmatch(quant) and not file)):
        raise _bad(text)
    if file and (not file.lower().endswith(".gguf") or {".", "..", ""} & {*file.split("/")}):
        raise BadReference(f"{text}: got the file {file!r}, expected one that ends in .gguf")
    return Reference(
        repository=f"{organization}/{name}",
        quant=quant or None,
        file=file or None,
        revision=revision or "main",
    )


def _of_link(path: str) -> tuple[str, str | None]:
    """The path of a link as in `hf:PATH`, and the revision that it names."""
    match path.strip("/").split("/"):
        case [organization, name, view, revision, *file] if view in _VIEWS:
            return "/".join((organization, name, *file)), revision
    return path.strip("/"), None


def _bad(text: str) -> BadReference:
    meant = f"; did you mean {PREFIX}{text}?" if _ON_HUB.fullmatch(text) else ""
    if not text.startswith(PREFIX) and (_NAME.fullmatch(text) or _IN_OLLAMA.fullmatch(text)):
        meant = "; a model of Ollama's library has another name on huggingface.co"
    return BadReference(f"got {text!r}, {_EXPECTED}{meant}")
