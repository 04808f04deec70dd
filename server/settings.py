"""What `serve` can be told, and by what: one schema, from which the flags are derived.

    flags  >  environment, HEARTH_PORT for --port  >  the TOML file of --config  >  defaults

It knows names, ranges and where a value came from; it opens no file but the configuration.
"""

import json
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ByteSize,
    Field,
    SecretStr,
    ValidationError,
    model_validator,
)
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from models.bundle import PREFIX_CACHE
from runtime.self_test import Level
from server.logs import LogFormat

PREFIX = "HEARTH_"
KEY_LENGTH = 8  # shorter ones are guessed
_LANGUAGE_ONLY = (
    "speculation",
    "logits",
    "max_memory",
    "cache_ram",
    "cache_dir",
    "cache_disk",
)


class BadSettings(Exception):
    """A setting cannot be taken. The message names it, where it came from and what was wanted."""


def _split(value: object) -> object:
    """In an environment variable the members of a list are parted by commas."""
    if isinstance(value, str):
        return [part.strip() for part in value.split(",") if part.strip()]
    return value


def _long_enough(key: SecretStr) -> SecretStr:
    if len(key.get_secret_value()) < KEY_LENGTH:
        raise ValueError(f"a key has at least {KEY_LENGTH} characters")
    return key


def _whole_bytes(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("a size is a number of bytes, or one with a unit as in 256MiB")
    return value


Size = Annotated[ByteSize, BeforeValidator(_whole_bytes)]
Key = Annotated[SecretStr, AfterValidator(_long_enough)]
Keys = Annotated[tuple[Key, ...], NoDecode, BeforeValidator(_split)]
Words = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_split)]


def _setting(group: str, default: Any, description: str, **limits: Any) -> Any:
    return Field(default, description=description, json_schema_extra={"group": group}, **limits)


class Settings(BaseSettings):
    """The settings of one server. Sizes are in bytes, times in seconds."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="forbid", frozen=True)

    bundle: Path = Field(description="The directory that `bake` wrote.")
    config: Path | None = _setting("Settings", None, "A TOML file of settings, named as here.")

    host: str = _setting(
        "Network", "127.0.0.1", "Address to listen on; 0.0.0.0 opens it to the whole network."
    )
    port: int = _setting("Network", 8080, "Port to listen on; 0 takes a free one.", ge=0, le=65535)
    tls_cert: Path | None = _setting(
        "Network", None, "Serve HTTPS by this certificate chain (PEM); needs --tls-key."
    )
    tls_key: Path | None = _setting("Network", None, "The certificate's private key (PEM).")
    max_body_bytes: Size = _setting(
        # Three times the longest prompt that a context of 128k tokens takes, in escapes.
        "Network",
        ByteSize(10 * 2**20),
        "The largest body of a request; more is refused by 413.",
    )
    client_timeout: float = _setting(
        "Network",
        30.0,
        "Seconds that a client has to send a request (and more for a large one), or to read on.",
        gt=0,
        allow_inf_nan=False,
    )
    shutdown_timeout: float = _setting(
        "Network",
        30.0,
        "Seconds that accepted requests have to finish after SIGTERM.",
        ge=0,
        allow_inf_nan=False,
    )

    api_key: Keys = _setting(
        "Access", (), "Answer only who sends this key; again for more keys. Safer in a file."
    )
    api_key_file: Path | None = _setting("Access", None, "A file of keys, one a line.")
    cors_origins: Words = _setting(
        "Access",
        (),
        "Let pages of this origin ask, as https://a.example; again for more; * is all.",
    )

    alias: str | None = _setting(
        "Model", None, "The model's name to clients; else the bundle's folder.", min_length=1
    )
    threads: int | None = _setting("Model", None, "CPU threads; else one per physical core.", ge=1)
    queue_limit: int = _setting(
        "Model", 64, "Requests that may wait for a slot; one more is refused by 429.", ge=0
    )
    speculation: Literal["lookup", "off"] = _setting(
        "Model",
        "lookup",
        "lookup guesses tokens by the prompt and the answer so far and checks several in one step, "
        "where that is faster; off does not. Answers are the same.",
    )
    logits: Literal["near", "exact"] = _setting(
        "Model",
        "near",
        "near computes those exactly that are near the best one, or that a request's options let "
        "matter; with int8-g32 the others are coarse, which is a third faster. exact: every one.",
    )
    max_memory: Size | None = _setting(
        "Model",
        None,
        "Memory that serving may take: as many slots and as much --cache-ram as fit are opened. "
        "Else what the bundle or the system allows.",
    )
    self_test: Level = _setting(
        "Model",
        "quick",
        "What is checked at the start, before a request is taken. quick: the size of every file, "
        "the digest of each but the weights and the prefix, and the golden values of one prompt; "
        "it misses a flipped bit in the weights unless those values change. full: every digest, "
        "and every golden value by every entry point. off: sizes alone.",
    )
    cache_ram: Size = _setting(
        "Model", ByteSize(PREFIX_CACHE), "Memory for prompts that were read before; 0 for none."
    )
    cache_dir: Path | None = _setting("Model", None, "Keep them there too, across restarts.")
    cache_disk: Size = _setting("Model", ByteSize(2**30), "The most that --cache-dir may hold.")

    log_level: Literal["debug", "info", "warning", "error"] = _setting(
        "Logs", "info", "debug, info, warning or error."
    )
    log_format: LogFormat = _setting("Logs", "text", "text, or json: one object a line.")

    @model_validator(mode="after")
    def _both_or_none(self) -> Self:
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("tls_cert and tls_key go together: give both or none")
        return self

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Only what `load` passes: it reads the sources itself, to say where each value is from."""
        return (init_settings,)


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """Settings, and for each that was given the source: "flag", "environment" or the file."""

    settings: Settings
    origins: Mapping[str, str]


def load(flags: Mapping[str, Any]) -> Loaded:
    """The settings by flags, environment and file; raises BadSettings."""
    environment = EnvSettingsSource(Settings)()
    path = flags.get("config", environment.get("config"))
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    file = _read(path) if path else {}
    for origin, given in ((str(path), file), ("environment", environment), ("flag", flags)):
        values |= given
        origins |= dict.fromkeys(given, origin)
    try:
        return Loaded(settings=Settings(**values), origins=origins)
    except ValidationError as error:
        raise BadSettings(_problem(error, origins)) from None


def refuse_language_only(loaded: Loaded) -> None:
    """Raise BadSettings if a setting was given that only a language model has."""
    for name in _LANGUAGE_ONLY:
        if origin := loaded.origins.get(name):
            raise BadSettings(
                f"{name}: only for a language model, and {loaded.settings.bundle} holds functions "
                f"on arrays (from {_source(name, origin)})"
            )


def read_keys(settings: Settings) -> tuple[str, ...]:
    """The API keys by value and by file; raises BadSettings, also for a file without any."""
    keys = tuple(key.get_secret_value() for key in settings.api_key)
    if settings.api_key_file is None:
        return keys
    try:
        lines = settings.api_key_file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BadSettings(
            f"api_key_file: {settings.api_key_file} cannot be read: {error}"
        ) from None
    found = tuple(line.strip() for line in lines if line.strip())
    if not found or min(map(len, found)) < KEY_LENGTH:
        raise BadSettings(
            f"api_key_file: {settings.api_key_file} must hold keys of at least {KEY_LENGTH} "
            f"characters, one a line"
        )
    return keys + found


def as_toml(loaded: Loaded) -> str:
    """The effective settings, one a line with its source; secrets hidden. `--config` reads it."""
    return "".join(f"{line}\n" for line in _lines(loaded))


def _lines(loaded: Loaded) -> Iterator[str]:
    for name in Settings.model_fields:
        value = getattr(loaded.settings, name)
        origin = loaded.origins.get(name, "default")
        if name == "config":
            continue
        if _is_secret(name):
            yield f"# {name}: {len(value)} hidden  # {origin}"
        elif value is None:
            yield f"# {name} is not set  # {origin}"
        else:
            yield f"{name} = {_toml(value)}  # {origin}"


def _toml(value: object) -> str:
    """JSON's numbers, strings and lists are TOML's."""
    return json.dumps(value, ensure_ascii=False, default=str)


def _read(path: str | Path) -> dict[str, Any]:
    try:
        values = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise BadSettings(f"config: {path} cannot be read: {error.strerror}") from error
    except ValueError as error:  # a TOMLDecodeError, one of UTF-8, a number of 5000 digits
        raise BadSettings(f"config: {path} is not TOML: {error}") from error
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
    if problem["type"] == "missing":
        return f"{name.upper()} is missing: name the directory that `bake` wrote"
    origin = origins[name]
    source = _source(name, origin)
    got = "" if _is_secret(name) else f", got {problem['input']!r}"
    return f"{name}: {problem['msg'].removeprefix('Value error, ')}{got} (from {source})"


def _source(name: str, origin: str) -> str:
    return {"flag": _flag(name), "environment": f"{PREFIX}{name.upper()}"}.get(origin, origin)


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _is_secret(name: str) -> bool:
    return name == "api_key"
