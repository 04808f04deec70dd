"""What an operator asks of a language model: GET /props and /slots.

They have llama-server's field names for what has a counterpart there.
"""

from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from server.api.current_service import CurrentLanguageService
from server.api.generation_fields import SamplingFields
from server.api.http_errors import ERRORS, ErrorBody
from server.errors import NoSlotFree
from server.version import version

router = APIRouter(responses=ERRORS, tags=["operation"])


class GenerationSettings(BaseModel):
    """The defaults of a request: the sampling fields, and the context in tokens."""

    params: dict[str, Any]
    n_ctx: int


class Kernels(BaseModel):
    """The functions of our own in the program; the compiler made everything else."""

    names: list[str]
    instructions: str | None = Field(
        description="avx512vnni, avx2, dotprod, or portable: none of these. null without kernels."
    )


class Props(BaseModel):
    """What this server is. `bundle` is the bundle's digest, system_fingerprint of its answers."""

    default_generation_settings: GenerationSettings
    total_slots: int
    queue_limit: int
    model_alias: str
    model_ftype: str = Field(description="The precision of the weights.")
    kernels: Kernels
    modalities: dict[str, bool]
    chat_template: str
    bos_token: str
    eos_token: str
    build_info: str
    bundle: str


class NextToken(BaseModel):
    """The answer in a slot: `n_decoded` tokens so far."""

    n_decoded: int


class Slot(BaseModel):
    """One place for a request; the numbers are 0 and `id_task` is null while it is free."""

    id: int
    id_task: int | None
    n_ctx: int
    is_processing: bool
    n_prompt_tokens: int
    n_prompt_tokens_processed: int = Field(description="Read by the model by now.")
    n_prompt_tokens_cache: int = Field(description="Taken from the prefix cache.")
    next_token: list[NextToken]


@router.get("/props")
async def props(service: CurrentLanguageService) -> Props:
    """The server's properties."""
    manifest, state = service.manifest, service.state()
    special = manifest.special_tokens
    name = service.tokenizer.name
    kernels = manifest.provenance.kernels
    return Props(
        default_generation_settings=GenerationSettings(
            params=SamplingFields.model_validate({}).model_dump(mode="json"), n_ctx=manifest.context
        ),
        total_slots=len(state.slots),
        queue_limit=state.queue_limit,
        model_alias=service.name,
        model_ftype=manifest.precision,
        kernels=Kernels(names=[*kernels.names], instructions=kernels.instructions),
        modalities={"vision": False, "audio": False},
        chat_template=service.chat_template,
        bos_token="" if special.bos is None else name(special.bos),
        eos_token=name(special.eos[0]) if special.eos else "",
        build_info=f"hearth {version()}",
        bundle=service.fingerprint,
    )


@router.get("/slots", responses={503: {"model": ErrorBody}})
async def slots(
    service: CurrentLanguageService,
    fail_on_no_slot: Annotated[
        bool, Query(description="Answer 503 when every slot is busy.")
    ] = False,
) -> list[Slot]:
    """What each slot is doing, as after the engine's latest step."""
    states = service.state().slots
    if fail_on_no_slot and all(slot.busy for slot in states):
        raise NoSlotFree("every slot is busy")
    return [
        Slot(
            id=slot.id,
            id_task=slot.request,
            n_ctx=service.manifest.context,
            is_processing=slot.busy,
            n_prompt_tokens=slot.prompt_tokens,
            n_prompt_tokens_processed=max(
                0, min(slot.read_tokens, slot.prompt_tokens) - slot.cached_tokens
            ),
            n_prompt_tokens_cache=slot.cached_tokens,
            next_token=[NextToken(n_decoded=slot.generated_tokens)] if slot.busy else [],
        )
        for slot in states
    ]
