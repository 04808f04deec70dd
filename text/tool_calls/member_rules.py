"""The grammar of the members of an object in the order of its schema."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def member_sequence(
    members: Sequence[tuple[str, bool]], add: Callable[[str], str], *, separator: str = '","'
) -> str:
    """The body of a rule for members, with their rules' names and whether they are required.

    Optional members may be absent. `add` makes a rule of a body and returns its name.
    """
    rests = [""] * (len(members) + 1)
    for index in range(len(members) - 1, 0, -1):
        member, required = members[index]
        optional = "" if required else "?"
        rests[index] = add(f"({separator} {member}){optional} {rests[index + 1]}")
    choices = []
    for index, (member, required) in enumerate(members):
        choices.append(f"{member} {rests[index + 1]}")
        if required:
            break
    else:
        choices.append('""')
    return " | ".join(choices)
