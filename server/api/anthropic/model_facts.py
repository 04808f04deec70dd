"""Fields of /v1/models that Anthropic's API has, and what a model can do in its words."""

from typing import Any, Literal

from pydantic import BaseModel, Field

from hearthd.bundle import LanguageManifest
from hearthd.server.api.ollama.model_list import template_source
from hearthd.server.services.deployment import Deployment
from hearthd.text.reasoning import reasoning_tags

_EFFORTS = ("low", "medium", "high", "xhigh", "max")


class Support(BaseModel, extra="allow"):
    """Whether a model supports something, and for each of its forms whether it supports that."""

    supported: bool = Field(description="Whether it is supported.")


class AnthropicCapabilities(BaseModel):
    """What a model can do with /v1/messages."""

    batch: Support = Field(description="Message batches.")
    citations: Support = Field(description="Never: answers have no citations.")
    code_execution: Support = Field(description="Never: the server runs no code.")
    context_management: Support = Field(description="Never.")
    effort: Support = Field(
        description="Whether the chat template reads `effort` of `output_config`."
    )
    image_input: Support = Field(description="Images in messages.")
    pdf_input: Support = Field(description="Never: documents are texts.")
    server_tools: Support = Field(description="Never: clients run the tools.")
    structured_outputs: Support = Field(description="`format` in `output_config`.")
    thinking: Support = Field(description="Whether the model reasons before it answers.")


class ModelFacts(BaseModel):
    """Fields of Anthropic's API about a model."""

    type: Literal["model"] = Field("model", description="A field of Anthropic's API, always model.")
    lifecycle: Literal["active"] = Field(
        "active", description="A field of Anthropic's API, always active."
    )
    max_input_tokens: int | None = Field(
        None, description="A field of Anthropic's API: the size of the context in tokens."
    )
    max_tokens: int | None = Field(
        None, description="A field of Anthropic's API: the size of the context again."
    )


def capabilities(deployment: Deployment) -> AnthropicCapabilities:
    """What a model can do with /v1/messages; nothing without a chat template."""
    manifest, chats = deployment.manifest, deployment.has_chat_template
    template = template_source(deployment)
    reasons = reasoning_tags(template) is not None
    sees = isinstance(manifest, LanguageManifest) and manifest.image_settings is not None
    return AnthropicCapabilities(
        batch=_support(chats),
        citations=_support(False),
        code_execution=_support(False),
        context_management=_support(False),
        effort=_support("reasoning_effort" in template, *_EFFORTS),
        image_input=_support(chats and sees),
        pdf_input=_support(False),
        server_tools=_support(False, "code_execution", "web_search"),
        structured_outputs=_support(chats),
        thinking=Support.model_validate(
            {
                "supported": reasons,
                "types": {
                    "adaptive": _support(reasons),
                    "enabled": _support(reasons),
                    "between_tools": _support(chats),
                    "disabled": _support(chats),
                },
            }
        ),
    )


def _support(supported: bool, *forms: str) -> Support:
    parts: dict[str, Any] = {form: Support(supported=supported) for form in forms}
    return Support(supported=supported, **parts)
