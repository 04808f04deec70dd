"""The options of a bake: one schema, from which the flags of `hearth bake` are derived.

The provenance of a bundle records those that decide its content, and `hearth reproduce` reads them
from there. None means that an option was not given: configs/, the weights or the precision then
decide its value.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import (
    AfterValidator,
    BaseModel,
    ByteSize,
    ConfigDict,
    Field,
    JsonValue,
    ValidationError,
    field_validator,
    model_validator,
)

from hearthd.baker.compiler.targets import TARGET_GROUPS, TARGET_NAMES
from hearthd.baker.pipeline.image_sizes import MAX_TOKENS
from hearthd.baker.pipeline.recipe import RecipeError
from hearthd.baker.precision.auto_precision import AUTO, MAX_KL
from hearthd.bundle import CALIBRATION, DRAFTER, Activations, bundle_home
from hearthd.bundle.gguf_folder import gguf_file_in
from hearthd.bundle.parsing.validation import expected
from hearthd.flag_names import flag
from hearthd.models.catalog import TEXT
from hearthd.models.families.gru import FORMS
from hearthd.models.precision import NAMED_PRECISIONS, PRECISIONS, KvCache

Kind: TypeAlias = Literal["language model", "encoder", "speech model", "GRU"]
_LANGUAGE: tuple[Kind, ...] = ("language model",)
_TEXT: tuple[Kind, ...] = ("language model", "encoder")
_MATRICES: tuple[Kind, ...] = (*_TEXT, "speech model")
_ALL: tuple[Kind, ...] = (*_MATRICES, "GRU")
_GRU: tuple[Kind, ...] = ("GRU",)

DEFAULT_RANK, MAX_RANK = 16, 256


class BadOption(RecipeError):
    """The value of an option is not valid. The message names its flag."""


def _require_precision(name: str) -> str:
    if name not in (AUTO, *NAMED_PRECISIONS):
        renamed = "; int8 was renamed to int8-g32" if name == "int8" else ""
        raise ValueError(f"{', '.join((*NAMED_PRECISIONS, AUTO))}{renamed}")
    return name


def _require_architecture(name: str) -> str:
    if name not in TEXT:
        raise ValueError(", ".join(TEXT))
    return name


def _option(
    group: str,
    description: str,
    default: Any = None,
    *,
    kinds: tuple[Kind, ...] = _LANGUAGE,
    metavar: str | None = None,
    recorded: bool = True,
    copy: str | None = None,
    **limits: Any,
) -> Any:
    """A field of BakeOptions.

    group     section of --help and of the reference
    kinds     the models that take the option
    metavar   its value in --help; None: by its type
    recorded  whether the provenance records it
    copy      name of the file in the bundle that keeps a copy of the file that the option names
    """
    extra: dict[str, JsonValue] = {
        "group": group,
        "kinds": list(kinds),
        "metavar": metavar,
        "recorded": recorded,
        "copy": copy,
    }
    return Field(default, description=description, json_schema_extra=extra, **limits)


class BakeOptions(BaseModel):
    """The options of one bake. Sizes are in bytes."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: str | None = _option(
        "Model",
        "Name of a family that the weights must be of, such as gemma3. Default: what their files "
        "say.",
        kinds=_ALL,
        recorded=False,
    )
    weights: Path | None = _option(
        "Model",
        "GGUF file; Hugging Face folder with config.json, safetensors files and tokenizer.json; "
        "for gru, a safetensors file with the state_dict of a torch.nn.GRU. The same as a path in "
        "place of MODEL. Default: the weights of an installed package, such as Hearth's extra "
        "`demo` installs.",
        kinds=_ALL,
        recorded=False,
    )
    as_: Annotated[str, AfterValidator(_require_architecture)] | None = _option(
        "Model",
        "Read weights of an architecture that Hearth does not know as weights of FAMILY, such as "
        "llama: a name of general.architecture in GGUF files. Keys that FAMILY does not know are "
        "rejected. Default: an unknown architecture is rejected.",
        kinds=_TEXT,
        metavar="FAMILY",
    )
    size: str | None = _option(
        "Model",
        "Size that the weights must have, such as 270m. Default: any.",
        metavar="SIZE",
        recorded=False,
    )
    adapter: Path | None = _option(
        "Model",
        "LoRA adapter to merge into the weights: a folder, as `hearth tune` and PEFT write it, or "
        "a GGUF file, as llama.cpp converts one.",
        metavar="PATH",
    )
    mmproj: Path | Literal["none"] | None = _option(
        "Model",
        "Projector of images beside a GGUF file: the GGUF file of the tower, such as "
        "mmproj-model-f16.gguf. none: read no images. Default: the file with mmproj in its name in "
        "the folder of the weights, if exactly one fits.",
        metavar="FILE|none",
    )
    precision: Annotated[str, AfterValidator(_require_precision)] | None = _option(
        "Precision",
        "How weight matrices are stored. "
        + " ".join(f"{name}: {PRECISIONS[name].help}." for name in NAMED_PRECISIONS)
        + f" {AUTO}: the fastest within --max-kl and --max-memory, and fewer bits for matrices of "
        "layers that matter less.",
        kinds=_MATRICES,
        metavar="PRECISION",
    )
    max_kl: float | None = _option(
        "Precision",
        f"With --precision {AUTO}: largest accepted mean KL divergence from f32, in nats per "
        f"token, measured on two short texts.  [default: {MAX_KL}]",
        metavar="NATS",
        ge=0,
        allow_inf_nan=False,
    )
    max_bytes: ByteSize | None = _option(
        "Precision",
        f"With --precision {AUTO}, in place of --max-kl: the most bytes that the weights take, "
        "such as 150M. Of what fits, the closest to f32 is taken.",
        gt=0,
    )
    calibration: Path | None = _option(
        "Precision",
        f"With --precision int4-g32, int5-g32 or {AUTO}: UTF-8 text that is like what the model "
        "will read. Layers are rounded so that what they compute for it changes least. Default: a "
        "text of prose, chat and code in several languages that comes with Hearth.",
        metavar="FILE",
        copy=CALIBRATION,
    )
    kv_cache: KvCache | None = _option(
        "Precision",
        "How keys and values are stored. int8 takes half the memory of f16. int4 takes a third: "
        "keys have 6 bits and values 4, and answers are less exact. Default: f16 with "
        "weights of integers, otherwise f32; int8 if --context auto finds that --max-memory leaves "
        "f16 less than 24,576 tokens.",
    )
    activations: Activations | None = _option(
        "Precision",
        "What products with weights of integers round activations to. int8 makes prompts faster "
        "to read and answers less exact; it needs weights of integers. Default: int8 for "
        + ", ".join(name for name in NAMED_PRECISIONS if PRECISIONS[name].rounding == "int8")
        + f", otherwise int16; {AUTO} measures both.",
    )
    context: Annotated[int, Field(ge=1)] | Literal["auto"] | None = _option(
        "Serving",
        f"Tokens per slot: the longest prompt together with its answer. {AUTO}: the context of the "
        "model, or with --max-memory as much as all slots have room for; a server uses as much of "
        "it as its memory allows. Of an encoder: tokens of the longest text.  [default: auto]",
        kinds=_TEXT,
        metavar="N|auto",
    )
    slots: int | None = _option(
        "Serving", "Requests that the server can run at the same time.", ge=1
    )
    max_memory: ByteSize | None = _option(
        "Serving",
        "Limit for the memory that serving takes, such as 400M or 1GiB. A bundle that needs more "
        "is rejected before it is compiled, unless the experts of a mixture can be read from the "
        "file while serving; a server of the bundle keeps to the limit.",
        ge=10**6,
    )
    drafter: Path | Literal["none"] | None = _option(
        "Serving",
        "What drafts tokens, where that is faster: a drafter that `hearth tune --drafter` made for "
        "these weights, a folder or its file; or a small language model with the same vocabulary: "
        "a GGUF file, a Hugging Face folder, or hf:ORG/REPO[:QUANT] on the hub; or the assistant "
        "of a Gemma 4. none: no drafter. Default: the layer of the weights that predicts further "
        "tokens (MTP), if they have one.",
        metavar="PATH|none",
        copy=DRAFTER,
    )
    image_max_tokens: int | None = _option(
        "Serving",
        "Of a model that reads images of any size: the most positions that an image takes. Larger "
        f"images are made smaller.  [default: {MAX_TOKENS}]",
        metavar="N",
        ge=1,
    )
    adapters: int | None = _option(
        "Serving",
        "Places for LoRA adapters that the server loads while it runs. Requests with different "
        "adapters are computed together.",
        ge=1,
    )
    rank: int | None = _option(
        "Serving",
        f"With --adapters: the largest rank of an adapter.  [default: {DEFAULT_RANK}]",
        metavar="R",
        ge=1,
        le=MAX_RANK,
    )
    steps: int | None = _option(
        "GRU", "Length of the sequence that `run` takes, in steps.", kinds=_GRU
    )
    batch: int | None = _option("GRU", "Sequences per call.", kinds=_GRU)
    form: str | None = _option(
        "GRU", f"How the steps are compiled: {', '.join(FORMS)}.", kinds=_GRU, metavar="FORM"
    )
    batch_first: bool = _option(
        "GRU",
        "`run` takes and returns (batch, steps, ...) instead of (steps, batch, ...).",
        default=False,
        kinds=_GRU,
    )
    target: str = _option(
        "Bundle",
        f"Machine to compile for: {', '.join(TARGET_NAMES)}. {' or '.join(TARGET_GROUPS)}: a "
        "program for each of these machines, beside one copy of the weights.",
        default="host",
        kinds=_ALL,
        metavar="TARGET",
    )
    out: Path | None = _option(
        "Bundle",
        "Folder to write the bundle to; an existing bundle is replaced. Default: a folder in the "
        "current one, named after the model and its options.",
        kinds=_ALL,
        metavar="FOLDER",
        recorded=False,
    )
    recompile: bool = _option(
        "Bundle",
        "Compile the program and convert the tokenizer, even if an earlier bake on this machine "
        "did so.",
        default=False,
        kinds=_ALL,
        recorded=False,
    )

    verify_later: bool = _option(
        "Bundle",
        "Leave the comparison with NumPy, which takes about half of the time, to a later `hearth "
        "verify`. The bundle can be served before. Arrays and encoders are always compared.",
        default=False,
        kinds=_ALL,
        recorded=False,
    )

    @property
    def fixed_context(self) -> int | None:
        """The context in tokens; None for `--context auto`, the default."""
        return self.context if isinstance(self.context, int) else None

    @field_validator("*")
    @classmethod
    def _expand_home(cls, value: Any) -> Any:
        """A shell does not expand ~ in --OPTION=~/FILE, nor does anything in a file of settings."""
        return bundle_home.expanded(value) if isinstance(value, Path) else value

    @field_validator("weights", "drafter")
    @classmethod
    def _find_file(cls, value: Any) -> Any:
        """A folder can have the GGUF file of one model."""
        return gguf_file_in(value) if isinstance(value, Path) else value

    @model_validator(mode="after")
    def _check_limits(self) -> Self:
        if self.max_kl is not None and self.max_bytes is not None:
            raise ValueError("--max-kl and --max-bytes: got both, expected one; omit one of them")
        return self

    @model_validator(mode="after")
    def _check_rank(self) -> Self:
        if self.rank is not None and self.adapters is None:
            raise ValueError("--rank needs --adapters")
        return self

    def require_kind(self, kind: Kind, model: str) -> None:
        """Raise BadOption if an option is given that a kind of models does not take."""
        for name, field in type(self).model_fields.items():
            kinds = _extra(field)["kinds"]
            if kind not in kinds and getattr(self, name) != field.default:
                raise BadOption(
                    f"{flag(name)}: {model} is not a {' or '.join(kinds)}; omit the option"
                )

    def record(self, kind: Kind, **resolved: Any) -> dict[str, Any]:
        """The options of a kind of models as the provenance has them, by the names of fields.

        `resolved` are values in place of those that are not given. A file or a folder is recorded
        by the name of its copy in the bundle, or its own.
        """
        return dict(self._recorded(kind, resolved))

    def _recorded(self, kind: Kind, resolved: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
        for name, field in type(self).model_fields.items():
            extra = _extra(field)
            value = resolved.get(name, getattr(self, name))
            if value is not None and extra["recorded"] and kind in extra["kinds"]:
                if isinstance(value, Path):
                    value = extra["copy"] or value.name
                yield name, int(value) if isinstance(value, ByteSize) else value


def bake_options(values: Mapping[str, Any], *, strict: bool = False) -> BakeOptions:
    """The options with these values, by the names of fields; raises BadOption.

    `strict` accepts no text for a number.
    """
    try:
        return BakeOptions.model_validate(dict(values), strict=strict)
    except ValidationError as error:
        problem = error.errors()[0]
        if not problem["loc"]:
            raise BadOption(problem["msg"].removeprefix("Value error, ")) from None
        name = str(problem["loc"][0])
        raise BadOption(
            f"{flag(name)}: got {problem['input']!r:.80}, expected {expected(problem)}"
        ) from None


def options_recorded_for(kind: Kind) -> frozenset[str]:
    """The names of the options of a kind of models that the provenance records."""
    extras = {name: _extra(field) for name, field in BakeOptions.model_fields.items()}
    return frozenset(
        n for n, extra in extras.items() if extra["recorded"] and kind in extra["kinds"]
    )


def recorded_options(record: Mapping[str, Any], bundle: Path) -> dict[str, Any]:
    """The values of options that a bundle's provenance records, for `bake_options`.

    A file is its copy in the bundle. A bundle has no copy of an adapter.
    """
    copies = {
        name: bundle / copy
        for name, field in BakeOptions.model_fields.items()
        if (copy := _extra(field)["copy"]) and record.get(name) == copy
    }
    return {**record, **copies}


def _extra(field: Any) -> dict[str, Any]:
    """The arguments of `_option`."""
    return dict(field.json_schema_extra)
