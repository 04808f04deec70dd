"""POST /v1/rerank: documents in the order of their relevance to a query, as Jina has it."""

from typing import Annotated, Literal

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field

from server.api.current_service import CurrentEncoder
from server.api.disconnect import unless_disconnected
from server.api.fields import ModelFields, Text
from server.api.http_errors import ERRORS
from server.api.json_body import JsonRoute

router = APIRouter(route_class=JsonRoute, responses=ERRORS, tags=["Rerank"])


class RerankRequest(ModelFields):
    """A query, and the documents to order."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"query": "a pet", "documents": ["a dog", "a car"]}]}
    )

    query: Text = Field(description="The query.")
    documents: Annotated[list[Text], Field(min_length=1, max_length=2048)] = Field(
        description="1 to 2048 documents."
    )
    top_n: int | None = Field(
        None, ge=1, description="Only so many documents, the most relevant ones. null: all."
    )
    return_documents: bool = Field(False, description="Whether results have the documents.")


class RerankDocument(BaseModel):
    """A document of the request."""

    text: str = Field(description="Its text.")


class RerankResult(BaseModel):
    """The relevance of a document."""

    index: int = Field(description="Position of the document in the request, from 0.")
    relevance_score: float = Field(
        description="From 0 to 1: the logistic function of the model's score."
    )
    document: RerankDocument | None = Field(default=None, description="With `return_documents`.")


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
async def rerank(body: RerankRequest, service: CurrentEncoder, request: Request) -> RerankResponse:
    """Order documents by their relevance to a query. The model must be a reranker."""
    work = service.score_all(body.query, body.documents)
    scores = await unless_disconnected(request, work)
    tokens = sum(score.tokens for score in scores)
    order = sorted(range(len(scores)), key=lambda index: -scores[index].relevance)
    return RerankResponse(
        object="list",
        model=service.name,
        results=[_result(index, scores[index].relevance, body) for index in order[: body.top_n]],
        usage=RerankUsage(prompt_tokens=tokens, total_tokens=tokens),
    )


def _result(index: int, relevance: float, body: RerankRequest) -> RerankResult:
    if not body.return_documents:
        return RerankResult(index=index, relevance_score=relevance)
    document = RerankDocument(text=body.documents[index])
    return RerankResult(index=index, relevance_score=relevance, document=document)
