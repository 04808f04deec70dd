"""Limits that a comparison must keep to, and how it does not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from baker.compare.report.summary import Report


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Of all texts, and of all answers; None for no limit.

    max_kl          mean divergence, in nats
    max_difference  of a log-probability of one of A's best five tokens, anywhere
    min_agreement   share of positions with the same most probable token, 0 to 1
    """

    max_kl: float | None
    max_difference: float | None
    min_agreement: float | None


def failures(report: Report, limits: Limits) -> list[str]:
    """Each limit that is not kept, as a sentence."""
    sentences = []
    for kind, summary in (("texts", report.texts), ("answers", report.answers)):
        if summary is None:
            continue
        for what, got, most in (
            ("the mean KL", summary.kl_mean, limits.max_kl),
            ("a log-probability's difference", summary.largest_difference, limits.max_difference),
        ):
            if most is not None and got > most:
                sentences.append(f"{kind}: {what} is {got:.6g}, wanted at most {most:g}")
        least = limits.min_agreement
        if least is not None and summary.agreement < least:
            sentences.append(
                f"{kind}: the best token is the same at {summary.agree} of {summary.positions} "
                f"positions, wanted {least:.2%}"
            )
    return sentences
