"""An OpenAI-compatible server as a side: the top tokens after some token ids.

Each position is one request: POST /completions with a prompt of token ids, one token, temperature
0 and logprobs. The server must accept token ids, and its log-probabilities must be those before
sampling, as with Hearth and llama-server. Answers have OpenAI's form, or llama-server's, which also
has the ids of the tokens. Without ids, the text of a token is looked up in the vocabulary of the
other side.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urldefrag

import httpx

from hearthd.baker.compare.sides.prediction import TopPrediction
from hearthd.baker.compare.sides.side import SideDescription, SideError
from hearthd.baker.compare.sides.vocabulary import ids_by_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hearthd.baker.compare.sides.vocabulary import Vocabulary

_TIMEOUT = 300  # seconds per request
_ROUNDING = 1e-3  # a log-probability may exceed 0 by this
_RETRIES = 2  # of a failed connection
# llama-server sends no log-probabilities if the token ends within a character, as byte tokens do.
# A grammar chooses another token; the log-probabilities stay those before sampling.
_WHOLE_CHARACTER = "root ::= [a-z]"


def client_of(url: str, key: str | None) -> httpx.Client:
    """An HTTP client for a server; the key, if any, is sent as a bearer token."""
    return httpx.Client(
        base_url=url.rstrip("/") + "/",
        headers={} if key is None else {"Authorization": f"Bearer {key}"},
        timeout=_TIMEOUT,
        transport=httpx.HTTPTransport(retries=_RETRIES),
    )


class Endpoint:
    """A server behind a URL that ends in /v1: `http://HOST:PORT/v1#MODEL`.

    Without `#MODEL`, the model is the first of GET /models.
    """

    vocabulary = None
    vocab_size = None
    context = None

    def __init__(
        self, name: str, client: httpx.Client, vocabulary: Vocabulary | None, *, top: int
    ) -> None:
        """Look up the texts of tokens in `vocabulary`; request `top` tokens per position.

        Raises SideError.
        """
        self._client = client
        self._name = name
        self._top = top
        self._texts = vocabulary
        self._ids: dict[str, int] | None = None
        self._model = urldefrag(name).fragment or self._first_model()
        self.about = SideDescription(
            side_type="endpoint",
            name=name,
            gives=f"the top {top} tokens",
            details={"model": self._model},
        )

    def after(self, token_ids: Sequence[int]) -> TopPrediction:
        """See Side. Raises SideError."""
        body = {
            "model": self._model,
            "prompt": list(token_ids),
            "max_tokens": 1,
            "temperature": 0,
            "logprobs": self._top,
        }
        try:
            logprobs = self._completed(body)
            if logprobs is None:
                logprobs = self._completed({**body, "grammar": _WHOLE_CHARACTER})
            return self._top_of(logprobs)
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise SideError(
                f"{self._name}: the answer has no log-probabilities in OpenAI's or llama-server's "
                f"form ({type(error).__name__}: {error})"
            ) from error

    def _completed(self, body: dict[str, Any]) -> Any:
        """The log-probabilities of a completion, or None if the answer has none."""
        return self._ask("POST", "completions", body)["choices"][0]["logprobs"]

    def read(self, token_ids: Sequence[int], start: int) -> Iterator[TopPrediction]:
        """See Side. One request at a time, so that an interrupt ends the comparison."""
        return (self.after(token_ids[:end]) for end in range(start, len(token_ids)))

    def _top_of(self, logprobs: dict[str, Any]) -> TopPrediction:
        """The top tokens for the one token of an answer, best first."""
        if "content" in logprobs:
            entries = logprobs["content"][0]["top_logprobs"]
            tokens = [(self._id(entry), float(entry["logprob"])) for entry in entries]
        else:
            (entries,) = logprobs["top_logprobs"]
            tokens = [(self._id({"token": text}), float(p)) for text, p in entries.items()]
        best = sorted(tokens, key=lambda item: -item[1])
        if not best or not all(logprob <= _ROUNDING for _, logprob in best):
            raise ValueError(f"log-probabilities {[logprob for _, logprob in best]}")
        ids = (-rank if token is None else token for rank, (token, _) in enumerate(best, start=1))
        return TopPrediction(tuple(ids), tuple(min(logprob, 0.0) for _, logprob in best))

    def _id(self, entry: dict[str, Any]) -> int | None:
        """The id of a candidate; None if its text is not a single token of the vocabulary."""
        if "id" in entry:
            return int(entry["id"])
        if self._ids is None:
            if self._texts is None:
                raise SideError(
                    f"{self._name} sends tokens as text; name a bundle with the vocabulary: "
                    "--tokenizer BUNDLE"
                )
            self._ids = ids_by_text(self._texts)
        return self._ids.get(entry["token"])

    def _first_model(self) -> str:
        try:
            return str(self._ask("GET", "models", None)["data"][0]["id"])
        except (KeyError, IndexError, TypeError) as error:
            raise SideError(
                f"{self._name} lists no models; name one: {self._name}#MODEL"
            ) from error

    def _ask(self, method: str, route: str, body: dict[str, Any] | None) -> Any:
        try:
            answer = self._client.request(method, route, json=body)
        except httpx.HTTPError as error:
            raise SideError(f"{self._name}: the request failed: {error}") from error
        if answer.is_error:
            raise SideError(
                f"{self._name}: {method} {route} returned status {answer.status_code}: "
                f"{answer.text[:300]}"
            )
        try:
            return answer.json()
        except ValueError as error:
            raise SideError(f"{self._name}: the answer to {route} is not valid JSON") from error
