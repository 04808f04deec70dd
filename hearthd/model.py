"""A model in this process, as Python code uses it: see `hearthd.load`."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from hearthd.bundle import EncoderManifest, bundle_home, read_manifest
from hearthd.server.api.generation_fields import GenerationFields
from hearthd.server.services.array_service import FunctionsOptions
from hearthd.server.services.encoder_service import EncoderService, open_encoder_service
from hearthd.server.services.language_service import LanguageService, open_language_service
from hearthd.server.terminal.messages import Messages, prompt_ids, validated
from hearthd.server.terminal.session import Session

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path
    from typing import Self

    from numpy.typing import NDArray


def load_model(bundle: str | Path, *, threads: int | None = None) -> Model:
    """As hearthd.load."""
    folder = bundle_home.named_bundle(str(bundle))
    if isinstance(read_manifest(folder), EncoderManifest):
        return Model(open_encoder_service(folder, FunctionsOptions(threads=threads)))
    return Model(open_language_service(folder, threads=threads))


class Model:
    """A loaded bundle: a context manager that unloads it at its end. For one thread at a time.

    `options` of its methods are the fields of a request: temperature, top_p, seed, stop,
    json_schema and the others that docs/api.md lists for POST /generate. Methods that
    compute raise RequestError: InvalidRequest for a value that is not accepted; and TypeError for
    an unknown option, or a method that the model does not have.
    """

    def __init__(self, service: LanguageService | EncoderService) -> None:
        self._opened = ExitStack()
        self._session = self._opened.enter_context(Session(service))

    def generate(self, prompt: str, *, max_tokens: int | None = None, **options: Any) -> str:
        """Continue a text: by default to its end, its Modelfile's limit, or the full context."""
        return "".join(self.stream(prompt, max_tokens=max_tokens, **options))

    def chat(
        self,
        messages: str | Sequence[Mapping[str, Any]],
        *,
        max_tokens: int | None = None,
        **options: Any,
    ) -> str:
        """Answer a conversation: messages of OpenAI's chat route, or the text of the user."""
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        return "".join(self.stream(messages, max_tokens=max_tokens, **options))

    def stream(
        self,
        prompt: str | Sequence[Mapping[str, Any]],
        *,
        max_tokens: int | None = None,
        **options: Any,
    ) -> Iterator[str]:
        """The pieces of what `generate` returns for a text, or `chat` for messages.

        Closing the iterator cancels the answer.
        """
        session = self._language()
        prompt_or_ids = prompt if isinstance(prompt, str) else _prompt(session.service, prompt)
        fields = _fields(options)
        fields.take_defaults(session.service.sampling)
        limit = max_tokens or session.service.sampling.get("num_predict")
        return session.pieces(fields.completion(prompt_or_ids, max_tokens=limit, logprobs=None))

    def embed(self, texts: str | Sequence[str]) -> NDArray[np.float32]:
        """The embeddings of texts, of length 1: f32 (N, D), or (D,) for one text."""
        named = [("texts", text) for text in ([texts] if isinstance(texts, str) else texts)]
        vectors = [
            embedding.vector
            for embedding in self._session.run(self._session.service.embed_all(named))
        ]
        return vectors[0] if isinstance(texts, str) else np.stack(vectors)

    def close(self) -> None:
        """Unload the model, if it is still loaded."""
        self._opened.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _language(self) -> Session[LanguageService]:
        if isinstance(self._session.service, EncoderService):
            raise TypeError(f"{self._session.service.name} is an encoder: it embeds texts")
        return cast("Session[LanguageService]", self._session)


def _prompt(service: LanguageService, messages: Sequence[Mapping[str, Any]]) -> tuple[int, ...]:
    """The token ids of the prompt for a conversation; raises InvalidRequest."""
    entries = [dict(message) if isinstance(message, Mapping) else message for message in messages]
    return prompt_ids(service, validated(Messages, {"messages": entries}).messages)


def _fields(options: dict[str, Any]) -> GenerationFields:
    """The fields of a request; raises TypeError for an unknown one, and InvalidRequest."""
    if unknown := options.keys() - GenerationFields.model_fields.keys():
        raise TypeError(f"unknown option {min(unknown)!r}")
    return validated(GenerationFields, options)
