"""POST /v1/rerank: documents in the order of their relevance to a query.

A request has the form of Jina's API, with `documents`, or of Hugging Face's
text-embeddings-inference, with `texts`. The answer has the same form.
"""

from typing import Annotated, Literal, Self

from fastapi import Request
from pydantic import BaseModel, ConfigDict, Field, model_validator

from hearthd.server.api.current_service import encoder
from hearthd.server.api.disconnect import unless_disconnected
from hearthd.server.api.fields import Fields, ModelFields, Text
from hearthd.server.api.http_errors import ERRORS
from hearthd.server.api.json_body import JsonRoute
from hearthd.server.api.surface import surface
from hearthd.server.logs import count_tokens

router = surface("Rerank", ERRORS, JsonRoute)


class RerankDocument(Fields):
    """A text as an object, as in Cohere's and Jina's APIs."""

    text: Text = Field(description="The text.")


Document = Text | RerankDocument
Documents = Annotated[list[Document], Field(min_length=1, max_length=2048)]


class RerankRequest(ModelFields):
    """A query, and the documents to order."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"query": "a pet", "documents": ["a dog", "a car"]}]}
    )

    query: Document = Field(description="The query: a text, or an object with it in `text`.")
    documents: Documents | None = Field(
        None, description="1 to 2048 documents: texts, or objects with a `text`."
    )
    texts: Documents | None = Field(
        None, description="Another name of documents. The answer is then a list of scores."
    )
    top_n: int | None = Field(
        None, ge=1, description="Maximum number of results, the most relevant ones. null: all."
    )
    return_documents: bool = Field(
        False, description="With `documents`: whether results have the documents."
    )
    return_text: bool = Field(False, description="With `texts`: whether results have the texts.")
    raw_scores: bool = Field(
        False, description="Whether scores are the model's own, without the logistic function."
    )

    @model_validator(mode="after")
    def _one_of_them(self) -> Self:
        if (self.documents is None) == (self.texts is None):
            raise ValueError("documents or texts")
        return self


class RerankResult(BaseModel):
    """The relevance of a document."""

    index: int = Field(description="Position of the document in the request, from 0.")
    relevance_score: float = Field(
        description="From 0 to 1: the logistic function of the model's score. With `raw_scores`: "
        "that score."
    )
    document: RerankDocument | None = Field(default=None, description="With `return_documents`.")


class TextScore(BaseModel):
    """The relevance of a text."""

    index: int = Field(description="Position of the text in the request, from 0.")
    score: float = Field(description="As `relevance_score`.")
    text: str = Field(default="", description="With `return_text`.")


class RerankUsage(BaseModel):
    """Token counts of all pairs of query and document."""

    prompt_tokens: int = Field(description="Tokens of all pairs.")
    total_tokens: int = Field(description="The same.")


class RerankResponse(BaseModel):
    """The documents, the most relevant one first."""

    object: Literal["list"]
    model: str = Field(description="Name of the model.")
    results: list[RerankResult] = Field(description="The most relevant document first.")
    usage: RerankUsage


@router.post("/v1/rerank", summary="Order texts by relevance", response_model_exclude_unset=True)
async def rerank(body: RerankRequest, request: Request) -> RerankResponse | list[TextScore]:
    """Order documents by their relevance to a query. The model must be a reranker."""
    service = await encoder(request, body)
    field = "texts" if body.documents is None else "documents"
    documents = [_text(document) for document in getattr(body, field)]
    query = _text(body.query)
    scores = await unless_disconnected(request, service.score_all(query, documents, field))
    values = [score.logit if body.raw_scores else score.relevance for score in scores]
    order = sorted(range(len(values)), key=lambda index: -values[index])[: body.top_n]
    if field == "texts":
        shown = documents if body.return_text else None
        return [_score(index, values[index], shown) for index in order]
    shown = documents if body.return_documents else None
    tokens = sum(score.tokens for score in scores)
    count_tokens(tokens)
    return RerankResponse(
        object="list",
        model=service.name,
        results=[_result(index, values[index], shown) for index in order],
        usage=RerankUsage(prompt_tokens=tokens, total_tokens=tokens),
    )


def _text(document: str | RerankDocument) -> str:
    return document if isinstance(document, str) else document.text


def _score(index: int, relevance: float, texts: list[str] | None) -> TextScore:
    if texts is None:
        return TextScore(index=index, score=relevance)
    return TextScore(index=index, score=relevance, text=texts[index])


def _result(index: int, relevance: float, documents: list[str] | None) -> RerankResult:
    if documents is None:
        return RerankResult(index=index, relevance_score=relevance)
    document = RerankDocument(text=documents[index])
    return RerankResult(index=index, relevance_score=relevance, document=document)
