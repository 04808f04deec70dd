"""The settings of `hearth serve`: one schema, from which the flags are derived.

    flags  >  environment (HEARTH_PORT for --port)  >  the TOML file of --config  >  defaults

It knows names, ranges and the source of each value. It opens no files except the TOML file and
the file of API keys.
"""

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import ByteSize, Field, ValidationError, field_validator, model_validator
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)
from typing_extensions import override

from hearthd.bundle import MIN_CONTEXT, bundle_home
from hearthd.bundle.parsing.text_files import read_text
from hearthd.bundle.parsing.validation import expected
from hearthd.flag_names import flag
from hearthd.runtime.checks.self_test import Level
from hearthd.server.environment import PREFIX, unknown_variable, variable_of
from hearthd.server.logs import LogFormat
from hearthd.server.setting_types import Keys, Paths, Size, Words
from hearthd.text.overflow import Overflow
from hearthd.text.text_request import SAMPLING_FIELDS, SamplingParameters

# Of the fields that Settings takes from SamplingParameters.
SAMPLING_GROUP = "Sampling of requests that do not set it"


class BadSettings(Exception):
    """A setting is not valid. The message names the setting, its value and its source."""


def _setting(group: str, default: Any, description: str, **limits: Any) -> Any:
    extra = {"group": group, "only_off": limits.pop("only_off", False)}
    return Field(default, description=description, json_schema_extra=extra, **limits)


class Settings(BaseSettings, SamplingParameters):
    """The settings of one server: sizes in bytes, times in seconds, and defaults of sampling."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, extra="forbid", frozen=True, enable_decoding=False
    )

    bundle: Words = Field(
        (),
        description="Bundle: its folder, a folder of bundles, or a name in --home; or a model that "
        "is baked first, as in `hearth run`. Repeatable. Default: all bundles in --home.",
    )
    config: Path | None = _setting(
        "Settings",
        None,
        "TOML file with settings. Keys are named like the flags: max_memory for --max-memory.",
    )

    host: str = _setting(
        "Network",
        "127.0.0.1",
        "Address to listen on, or several separated by commas. 0.0.0.0 accepts connections from "
        "the whole network. unix:PATH is a socket in the file system.",
    )
    port: int = _setting(
        "Network", 8080, "Port to listen on. 0 chooses a free one.", ge=0, le=65535
    )
    api_prefix: str = _setting(
        "Network",
        "",
        "Prefix of every path, such as /llm, below which a proxy offers this server.",
        pattern=r"^(/[A-Za-z0-9._~-]+)*$",
    )
    forwarded_allow_ips: Words = _setting(
        "Network",
        (),
        "Address or network of a proxy whose header X-Forwarded-For names the client in the access "
        "log. Repeatable. `*` trusts all. Default: $FORWARDED_ALLOW_IPS, or this machine.",
    )
    tls_cert: Path | None = _setting(
        "Network", None, "Serve HTTPS with this certificate chain, a PEM file. Needs --tls-key."
    )
    tls_key: Path | None = _setting("Network", None, "Private key of the certificate, a PEM file.")
    max_body_bytes: Size = _setting(
        # Three times the longest prompt for a context of 128k tokens, written in JSON escapes.
        "Network",
        ByteSize(10 * 2**20),
        "Maximum size of a request body. A larger one is rejected with status 413.",
    )
    client_timeout: float = _setting(
        "Network",
        30.0,
        "Seconds for a client to send a request (longer if it is large), or to read more of a "
        "response, before its connection is closed.",
        gt=0,
        allow_inf_nan=False,
    )
    shutdown_timeout: float = _setting(
        "Network",
        30.0,
        "Seconds for accepted requests to finish after SIGTERM or Ctrl-C.",
        ge=0,
        allow_inf_nan=False,
    )

    api_key: Keys = _setting(
        "Access", (), "Require this API key. Repeatable. --api-key-file is safer."
    )
    api_key_file: Path | None = _setting(
        "Access", None, "Require one of the API keys in this file, one per line."
    )
    cors_origins: Words = _setting(
        "Access",
        (),
        "Allowed CORS origin, such as https://a.example. Repeatable. localhost allows all origins "
        "of this machine, `*` allows any.",
    )
    require_signature: Paths = _setting(
        "Access",
        (),
        "Load only bundles and LoRA adapters that `hearth sign` signed with this key: a file with "
        "the public key. Repeatable. Needs hearthd[verify].",
    )
    fetch_images: bool = _setting("Access", False, "Download images at addresses in requests.")
    webui: bool = _setting("Access", True, "Serve the chat page at /.")
    slots: bool = _setting("Access", True, "Report each slot at /slots.", only_off=True)
    share_cache: bool = _setting("Access", False, "Let all API keys share the prefix cache.")
    strict_fields: bool = _setting(
        "Access",
        False,
        "Reject a request with an unknown field, or one that would not be honored, with status "
        "400. Otherwise such fields are ignored and listed in the header Warning, unless the "
        "answer would be wrong without them.",
    )

    home: Path = _setting("Model", bundle_home.DEFAULT, bundle_home.HELP)
    alias: str | None = _setting(
        "Model",
        None,
        "Model name in the API, if there is one bundle. Default: the name of the bundle's folder. "
        "/v1/models lists further names, separated by commas, as aliases.",
        min_length=1,
    )
    tags: Words = _setting("Model", (), "Tag of the model in /v1/models. Repeatable.")
    chat_template: str | None = _setting(
        "Model",
        None,
        "Jinja source of a chat template, in place of the bundle's, or the name of one: chatml, "
        "command-r, gemma, llama3, phi3, rwkv-world or zephyr.",
        min_length=1,
    )
    chat_template_file: Path | None = _setting(
        "Model", None, "File with a chat template, in place of the bundle's."
    )
    threads: int | None = _setting(
        "Model", None, "CPU threads. Default: one per physical core.", ge=1
    )
    mmap: bool = _setting(
        "Model",
        True,
        "Map the weights of language models from their file. --no-mmap copies them into memory "
        "with huge pages: where the file system has none (ext4 before Linux 6.16), models of 1 GB "
        "and more decode faster, but start later, and servers of one bundle share no memory.",
    )
    queue_limit: int = _setting(
        "Model",
        64,
        "Requests that may wait for a slot. One more is rejected with status 429.",
        ge=0,
    )
    speculation: Literal["auto", "lookup", "off"] = _setting(
        "Model",
        "auto",
        "lookup drafts tokens that followed the same words earlier in the text, and verifies "
        "several in one step where that is faster. auto also drafts with the bundle's drafter, if "
        "it has one. off does neither. The answers are the same.",
    )
    logits: Literal["near", "exact"] = _setting(
        "Model",
        "near",
        "near computes exactly the logits that can be sampled. Logits too low to be sampled may be "
        "approximate, which makes int8-g32 a third faster. exact computes every logit exactly.",
    )
    max_memory: Size | None = _setting(
        "Model",
        None,
        "Memory limit for the whole process. Fewer slots and less --cache-ram are used if needed "
        "to stay below it, and the least recently used models are unloaded. Default: the limit "
        "given to `hearth bake`, and the limits of the system.",
        ge=10**6,
    )
    self_test: Level = _setting(
        "Model",
        "quick",
        "Checks of the bundle at startup, before the first request. quick: file sizes, all digests "
        "except the weights', and the golden values of one prompt; it misses damaged "
        "weights that do not change these values. full: all digests and all golden values. off: "
        "file sizes.",
    )
    lora: Words = _setting(
        "Model",
        (),
        "LoRA adapter to load with the bundle, as PATH or PATH=NAME: a folder that PEFT wrote, or "
        "a GGUF file. Repeatable. Requests name it as `model:name`. The bundle needs `hearth bake "
        "--adapters`.",
    )
    lora_dir: Path | None = _setting(
        "Model",
        None,
        "Folder of LoRA adapters, which are folders or GGUF files, that POST /lora-adapters/load "
        "may load while the server runs.",
    )
    context: int | None = _setting(
        "Model",
        None,
        "Tokens per slot: the longest prompt together with its answer, at most the context of the "
        "bundle. Default: all of it; of a bundle with `hearth bake --context auto`, as much as "
        "memory allows.",
        ge=MIN_CONTEXT,
    )
    overflow: Overflow = _setting(
        "Model",
        "error",
        "error rejects a prompt that is longer than the context with status 400. truncate-middle "
        "drops tokens in its middle: a quarter of those that stay are its start, and a quarter of "
        "the context is left for the answer. The header Warning says how many were dropped.",
    )
    cache_ram: Size | None = _setting(
        "Model",
        None,
        "Memory for the prefix cache, which keeps the KV caches of earlier prompts so that a new "
        "prompt with the same start is processed faster. 0 disables it. Default: as much as the "
        "rows of one whole context take, with snapshots of a model that has states, and at least "
        "256 MiB, as far as memory allows.",
    )
    cache_dir: Path | None = _setting(
        "Model", None, "Folder that keeps the prefix cache across restarts."
    )
    cache_disk: Size = _setting("Model", ByteSize(2**30), "Maximum size of --cache-dir.")

    state_dir: Path | None = _setting(
        "Stored responses",
        None,
        "Folder that keeps responses, conversations and batches across restarts, in one file. "
        "Default: they are kept in memory.",
    )
    state_size: Size = _setting(
        "Stored responses",
        ByteSize(16 * 2**20),
        "Maximum size of stored responses, conversations and batches. Those that were used least "
        "recently are dropped first. Without --state-dir, their memory is a part of --max-memory.",
    )

    pin: Words = _setting(
        "Several models",
        (),
        "Model that is loaded at the start and never unloaded. Repeatable. The first model is also "
        "loaded at the start, the others when they are requested.",
    )
    models_max: int = _setting(
        "Several models",
        0,
        "Maximum number of loaded models. The least recently used one is unloaded for another. "
        "0: only memory is the limit.",
        ge=0,
    )
    models_autoload: bool = _setting(
        "Several models",
        True,
        "Load a model when it is requested. --no-models-autoload rejects requests for models that "
        "POST /models/load has not loaded.",
    )
    idle_timeout: float | None = _setting(
        "Several models",
        None,
        "Seconds without a request after which a model that is not pinned is unloaded. The next "
        "request loads it again. Default: models are unloaded only to make room for others.",
        gt=0,
        allow_inf_nan=False,
    )

    log_level: Literal["debug", "info", "warning", "error"] = _setting(
        "Logs", "info", "Lowest level to log: debug, info, warning or error."
    )
    log_format: LogFormat = _setting("Logs", "text", "text, or json for one JSON object per line.")

    @property
    def sampling(self) -> dict[str, Any]:
        """The sampling parameters that are set."""
        return {name: getattr(self, name) for name in SAMPLING_FIELDS & self.model_fields_set}

    @property
    def names(self) -> tuple[str, ...]:
        """The names in `alias`; the first one is the model's."""
        return tuple(name.strip() for name in (self.alias or "").split(",") if name.strip())

    @field_validator("*")
    @classmethod
    def _expand_home(cls, value: Any) -> Any:
        """A shell does not expand ~ in --OPTION=~/FILE, nor does anything in a file of settings."""
        return bundle_home.expanded(value) if isinstance(value, Path) else value

    @model_validator(mode="after")
    def _check_tls(self) -> Self:
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("tls_cert and tls_key must be set together")
        return self

    @model_validator(mode="after")
    def _check_template(self) -> Self:
        if self.chat_template is not None and self.chat_template_file is not None:
            raise ValueError("chat_template and chat_template_file must not both be set")
        return self

    @classmethod
    @override
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Take values from `load` only, which reads the sources itself."""
        return (init_settings,)


@dataclass(frozen=True, kw_only=True)
class LoadedSettings:
    """Settings, and the source of each set one: "flag", "environment" or the file's path."""

    settings: Settings
    origins: Mapping[str, str]

    def source(self, name: str) -> str:
        """The flag, the environment variable or the file that sets a setting."""
        return _source(name, self.origins[name])


def load(flags: Mapping[str, Any]) -> LoadedSettings:
    """Load the settings from flags, environment and file; raises BadSettings."""
    if problem := unknown_variable(os.environ, Settings.model_fields):
        raise BadSettings(problem)
    environment = EnvSettingsSource(Settings)()
    path = flags.get("config", environment.get("config"))
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    file = _read(path) if path else {}
    for origin, source in ((str(path), file), ("environment", environment), ("flag", flags)):
        values |= source
        origins |= dict.fromkeys(source, origin)
    try:
        return LoadedSettings(settings=Settings(**values), origins=origins)
    except ValidationError as error:
        raise BadSettings(_problem(error, origins)) from None


def _read(path: str | Path) -> dict[str, Any]:
    try:
        values = tomllib.loads(read_text(bundle_home.expanded(Path(path))))
    except OSError as error:
        raise BadSettings(f"config: {path} cannot be read: {error.strerror}") from error
    except ValueError as error:  # invalid TOML, invalid UTF-8, or a number with 5000 digits
        raise BadSettings(f"config: {path} is not valid TOML: {error}") from error
    except RecursionError as error:
        raise BadSettings(f"config: {path} is nested too deeply") from error
    for name in values:
        if name not in Settings.model_fields or name == "config":
            raise BadSettings(f"{name}: unknown setting in {path}")
    return values


def _problem(error: ValidationError, origins: Mapping[str, str]) -> str:
    problem = error.errors()[0]
    if not problem["loc"]:
        return problem["msg"].removeprefix("Value error, ")
    name = str(problem["loc"][0])
    origin = origins[name]
    source = _source(name, origin)
    got = "" if is_secret(name) else f"got {problem['input']!r}, "
    return f"{name}: {got}expected {expected(problem)} (from {source})"


def _source(name: str, origin: str) -> str:
    return {"flag": flag(name), "environment": variable_of(name)}.get(origin, origin)


def is_secret(name: str) -> bool:
    """Whether a setting is not shown."""
    return name == "api_key"
