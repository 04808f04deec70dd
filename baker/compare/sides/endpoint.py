"""An OpenAI-compatible server as a side: its best few tokens after some ids.

Each place is one request: POST /completions with a prompt of token ids, one token, temperature 0
and logprobs. It needs a server that takes token ids, and whose log-probabilities are the model's
own and not those after sampling: `hearth serve` and llama-server are such. The form of the
answer is OpenAI's, or llama-server's, which has the ids of the tokens too. Where there are none, a
token is known by its text, in the vocabulary of the other side.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urldefrag

import httpx

from baker.compare.sides.prediction import Top
from baker.compare.sides.side import About, SideError
from baker.compare.sides.side_tokens import ids_by_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from baker.compare.sides.side_tokens import Vocabulary

_PATIENCE = 300  # seconds for a request
_ROUNDING = 1e-3  # by which a log-probability may be above 0
_RETRIES = 2  # of a connection that cannot be made


def client_of(url: str, key: str | None) -> httpx.Client:
    """The connection to a server; the key, if any, is sent as a bearer's."""
    return httpx.Client(
        base_url=url.rstrip("/") + "/",
        headers={} if key is None else {"Authorization": f"Bearer {key}"},
        timeout=_PATIENCE,
        transport=httpx.HTTPTransport(retries=_RETRIES),
    )


class Endpoint:
    """A server behind a URL that ends in /v1: `http://HOST:PORT/v1#MODEL`.

    Without `#MODEL` it is the first of GET /models.
    """

    vocabulary = None
    vocab_size = None
    context = None

    def __init__(
        self, name: str, client: httpx.Client, vocabulary: Vocabulary | None, *, top: int
    ) -> None:
        """`vocabulary` is what texts of tokens are looked up in, `top` how many are asked for.

        Raises SideError.
        """
        self._client = client
        self._name = name
        self._top = top
        self._texts = vocabulary
        self._ids: dict[str, int] | None = None
        self._model = urldefrag(name).fragment or self._first_model()
        self.about = About(
            kind="endpoint",
            name=name,
            gives=f"the best {top} tokens",
            details={"model": self._model},
        )

    def after(self, token_ids: Sequence[int]) -> Top:
        """See Side. Raises SideError."""
        answer = self._ask(
            "POST",
            "completions",
            {
                "model": self._model,
                "prompt": list(token_ids),
                "max_tokens": 1,
                "temperature": 0,
                "logprobs": self._top,
            },
        )
        try:
            return self._top_of(answer["choices"][0]["logprobs"])
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise SideError(
                f"{self._name} answers without log-probabilities in OpenAI's or llama-server's "
                f"form ({type(error).__name__}: {error})"
            ) from error

    def read(self, token_ids: Sequence[int], start: int) -> Iterator[Top]:
        """See Side. One request after the other, so that an interrupt ends all of it."""
        return (self.after(token_ids[:end]) for end in range(start, len(token_ids)))

    def _top_of(self, logprobs: dict[str, Any]) -> Top:
        """The candidates for the one token of an answer, best first."""
        if "content" in logprobs:
            entries = logprobs["content"][0]["top_logprobs"]
            found = [(self._id(entry), float(entry["logprob"])) for entry in entries]
        else:
            (entries,) = logprobs["top_logprobs"]
            found = [(self._id({"token": text}), float(p)) for text, p in entries.items()]
        best = sorted(found, key=lambda item: -item[1])
        if not best or not all(logprob <= _ROUNDING for _, logprob in best):
            raise ValueError(f"log-probabilities {[logprob for _, logprob in best]}")
        ids = (-place if token is None else token for place, (token, _) in enumerate(best, start=1))
        return Top(tuple(ids), tuple(min(logprob, 0.0) for _, logprob in best))

    def _id(self, entry: dict[str, Any]) -> int | None:
        """The id of a candidate, or None where the vocabulary has no single token of its text."""
        if "id" in entry:
            return int(entry["id"])
        if self._ids is None:
            if self._texts is None:
                raise SideError(
                    f"{self._name} tells tokens by their texts: give the vocabulary by "
                    "--tokenizer BUNDLE"
                )
            self._ids = ids_by_text(self._texts)
        return self._ids.get(entry["token"])

    def _first_model(self) -> str:
        try:
            return str(self._ask("GET", "models", None)["data"][0]["id"])
        except (KeyError, IndexError, TypeError) as error:
            raise SideError(
                f"{self._name} lists no models: name one, as {self._name}#MODEL"
            ) from error

    def _ask(self, method: str, route: str, body: dict[str, Any] | None) -> Any:
        try:
            answer = self._client.request(method, route, json=body)
        except httpx.HTTPError as error:
            raise SideError(f"{self._name} cannot be asked: {error}") from error
        if answer.is_error:
            raise SideError(
                f"{self._name} answers {answer.status_code} to {method} {route}: "
                f"{answer.text[:300]}"
            )
        try:
            return answer.json()
        except ValueError as error:
            raise SideError(f"{self._name} answers {route} with what is no JSON") from error
