"""Environment variables that are named as settings are."""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import TYPE_CHECKING

from hearthd.server.terminal import history

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

PREFIX = "HEARTH_"
_OF_LLAMA_SERVER = "LLAMA_ARG_"
# Kubernetes sets these in each container, for a service such as hearth-web.
_OF_A_SERVICE = re.compile(
    r"(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)"
)


def ignored_variables(variables: Iterable[str]) -> str | None:
    """What to know about settings of llama-server in the environment, if there are any."""
    names = sorted(name for name in variables if name.startswith(_OF_LLAMA_SERVER))
    if not names:
        return None
    return (
        f"{', '.join(names)}: ignored: llama-server reads this; Hearth reads {variable_of('port')} "
        "for --port, and so on"
    )


def variable_of(setting: str) -> str:
    """The environment variable of a setting."""
    return f"{PREFIX}{setting.upper()}"


def unknown_variable(variables: Iterable[str], settings: Collection[str]) -> str | None:
    """What is wrong with the first variable that begins as a setting's does, and is none."""
    known = {name.upper() for name in settings}
    for variable in variables:
        name = variable.upper().removeprefix(PREFIX)
        if (
            variable.upper() in (name, history.ENVIRONMENT)
            or name in known
            or _OF_A_SERVICE.fullmatch(name)
        ):
            continue
        near = get_close_matches(name, known)
        remedy = f"did you mean {variable_of(near[0])}?" if near else "unset it"
        return f"{variable}: unknown setting in the environment; {remedy}"
    return None
