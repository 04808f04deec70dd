"""What `serve` can be told: by flags, else by environment variables HEARTH_*, else the defaults."""

from pathlib import Path
from typing import Literal

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class Settings(BaseSettings):
    """The settings of one server.

    port     0 takes a free port
    threads  None takes one per physical core
    """

    model_config = SettingsConfigDict(env_prefix="HEARTH_", extra="forbid")

    bundle: Path
    host: str = "127.0.0.1"
    port: int = Field(8080, ge=0, le=65535)
    threads: int | None = Field(None, ge=1)
    log_level: Literal["debug", "info", "warning", "error"] = "info"
