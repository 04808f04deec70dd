"""GET /props and /slots: the state of a language model, with llama-server's field names."""

from typing import Annotated, Any, Literal

from fastapi import Path, Query, Request
from pydantic import BaseModel, Field

from hearthd.bundle import LanguageManifest
from hearthd.server.api.current_service import NamedModel, Pool, lease
from hearthd.server.api.generation_fields import SamplingFields
from hearthd.server.api.http_errors import ERRORS, ErrorResponse
from hearthd.server.api.surface import surface
from hearthd.server.errors import NoSlotFree
from hearthd.server.services.language_service import LanguageService
from hearthd.server.services.service import Description
from hearthd.server.version import version
from hearthd.text.errors import NotSupported
from hearthd.text.media_marker import MEDIA_MARKER

router = surface("Server", ERRORS)


class GenerationSettings(BaseModel):
    """Defaults of a request."""

    params: dict[str, Any] = Field(description="The sampling fields and their defaults.")
    n_ctx: int = Field(description="Size of the context in tokens.")


class Kernels(BaseModel):
    """The C kernels in the program. The compiler generated the rest of it."""

    names: list[str] = Field(description="Names of the kernels.")
    instructions: str | None = Field(
        description="Instruction set of the kernels: amx, avx512vnni, avxvnni, avx2, dotprod or "
        "portable. null without kernels."
    )


class Props(BaseModel):
    """Properties of the server and its model."""

    default_generation_settings: GenerationSettings
    total_slots: int = Field(description="Number of requests that can run at the same time.")
    queue_limit: int = Field(description="Maximum number of requests that wait for a slot.")
    model_alias: str = Field(description="Name of the model.")
    model_path: str = Field(description="Name of the folder of the bundle.")
    model_ftype: str = Field(description="Precision of the weights.")
    target: str = Field(description="Name of the target of the program that runs on this CPU.")
    kernels: Kernels
    modalities: dict[str, bool] = Field(
        description="Inputs besides text: images, as vision, and sound, as audio."
    )
    media_marker: str = Field(
        description="The text for an image or a sound in a `prompt_string` with `multimodal_data`. "
        "It is different after each start of the server."
    )
    chat_template: str = Field(description="Source of the chat template; empty if there is none.")
    system_prompt: str = Field(
        description="System message of conversations without one, as a Modelfile sets it; or empty."
    )
    bos_token: str = Field(description="Name of the token that begins a text, or empty.")
    eos_token: str = Field(description="Name of the token that ends an answer, or empty.")
    build_info: str = Field(description="Name and version of the server.")
    bundle: str = Field(description="The system_fingerprint of answers.")
    is_sleeping: bool = Field(
        description="Whether the model is unloaded. The next request for an answer loads it."
    )
    role: Literal["model", "router"] = Field(
        description="router if the server has several models, which requests choose by name."
    )
    max_instances: int = Field(
        description="Maximum number of loaded models. 0: only memory is the limit."
    )
    models_autoload: bool = Field(description="Whether a request loads its model.")


class NextToken(BaseModel):
    """Progress of the answer in a slot."""

    n_decoded: int = Field(description="Number of tokens generated so far.")
    n_remain: int = Field(description="Number of tokens that may still follow; -1 in a free slot.")


class Slot(BaseModel):
    """A slot. While it is free, `id_task` is null and the counts are 0."""

    id: int = Field(description="Number of the slot, from 0.")
    id_task: int | None = Field(description="Number of the request in the slot.")
    n_ctx: int = Field(description="Size of the context in tokens.")
    is_processing: bool = Field(description="Whether a request is in the slot.")
    n_prompt_tokens: int = Field(description="Tokens of the prompt.")
    n_prompt_tokens_processed: int = Field(
        description="Tokens of the prompt that the model has read so far."
    )
    n_prompt_tokens_cache: int = Field(
        description="Tokens of the prompt that came from the prefix cache."
    )
    next_token: list[NextToken] = Field(description="One entry.")


@router.get("/props", summary="Get the properties of the server")
async def props(deployment: NamedModel, pool: Pool, request: Request) -> Props:
    """Return properties of the server and a model, and the defaults of requests.

    A model that was never loaded is loaded for the answer.
    """
    if deployment.description is None:
        await lease(request, deployment)
    manifest, model = deployment.manifest, deployment.description
    if model is None or not isinstance(manifest, LanguageManifest):
        raise NotSupported("props: array functions have none; see /v1/bundle")
    program = deployment.program
    assert program is not None, "there is a manifest"
    return Props(
        default_generation_settings=GenerationSettings(
            params=_sampling_defaults(model), n_ctx=model.context
        ),
        total_slots=model.slots,
        queue_limit=model.queue_limit,
        model_alias=deployment.name,
        model_path=deployment.folder.resolve().name if deployment.folder else "",
        model_ftype=manifest.precision,
        target=program.target.name,
        kernels=Kernels(
            names=[*manifest.provenance.kernels.names], instructions=program.instructions
        ),
        modalities={
            "vision": manifest.image_settings is not None,
            "audio": manifest.sound is not None,
        },
        media_marker=MEDIA_MARKER,
        chat_template=model.chat_template,
        system_prompt=manifest.preset.system,
        bos_token=model.bos,
        eos_token=model.eos,
        build_info=f"hearth {version()}",
        bundle=deployment.fingerprint,
        is_sleeping=deployment.current is None,
        role="router" if len(pool) > 1 else "model",
        max_instances=pool.models_max,
        models_autoload=pool.autoload,
    )


def _sampling_defaults(model: Description) -> dict[str, Any]:
    fields = SamplingFields.model_validate({})
    fields.take_defaults(model.sampling)
    return fields.model_dump(mode="json")


@router.get(
    "/slots",
    summary="List the slots",
    responses={503: {"model": ErrorResponse, "description": "Every slot is busy."}},
)
async def slots(
    deployment: NamedModel,
    request: Request,
    fail_on_no_slot: Annotated[
        bool, Query(description="Answer 503 if every slot is busy.")
    ] = False,
) -> list[Slot]:
    """Return the state of each slot after the engine's latest step; none of an unloaded model."""
    if not request.app.state.shows_slots:
        raise NotSupported("slots: turned off by --no-slots")
    service = deployment.current
    if not isinstance(service, LanguageService):
        return []
    states = service.state().slots
    if fail_on_no_slot and all(slot.busy for slot in states):
        raise NoSlotFree("every slot is busy; retry later")
    return [
        Slot(
            id=slot.id,
            id_task=slot.request,
            n_ctx=service.context,
            is_processing=slot.busy,
            n_prompt_tokens=slot.prompt_tokens,
            n_prompt_tokens_processed=max(
                0, min(slot.read_tokens, slot.prompt_tokens) - slot.cached_tokens
            ),
            n_prompt_tokens_cache=slot.cached_tokens,
            next_token=[
                NextToken(
                    n_decoded=slot.generated_tokens,
                    n_remain=slot.remaining_tokens if slot.busy else -1,
                )
            ],
        )
        for slot in states
    ]


@router.post("/slots/{id}", summary="Reject a file of a slot")
async def slot_files(id: Annotated[int, Path(description="Number of the slot.")]) -> None:  # noqa: A002
    """Answer 501: prompts are found by their tokens, in memory and in `--cache-dir`."""
    raise NotSupported(
        f"slots/{id}: slots have no files; --cache-dir keeps what was read for all slots, and "
        '"cache_prompt": false reads a prompt again'
    )
