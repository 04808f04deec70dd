"""The limits of a comparison, and whether a report is within them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hearthd.baker.compare.report.summary import Report


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits for all texts and for all answers; None: no limit.

    max_kl          the mean KL divergence, in nats
    max_difference  the largest difference of a log-probability of A's top five tokens
    min_agreement   the fraction of positions with the same top token, 0 to 1
    """

    max_kl: float | None
    max_difference: float | None
    min_agreement: float | None


def failures(report: Report, limits: Limits) -> list[str]:
    """A sentence for each limit that the report exceeds."""
    sentences = []
    for group, summary in (("texts", report.texts), ("answers", report.answers)):
        if summary is None:
            continue
        for name, value, limit in (
            ("mean KL divergence", summary.kl_mean, limits.max_kl),
            (
                "largest difference of a log-probability",
                summary.largest_difference,
                limits.max_difference,
            ),
        ):
            if limit is not None and value > limit:
                sentences.append(f"{group}: the {name} is {value:.6g}, the limit is {limit:g}")
        min_agreement = limits.min_agreement
        if min_agreement is not None and summary.agreement < min_agreement:
            sentences.append(
                f"{group}: the top token is the same at {summary.agree} of {summary.positions} "
                f"positions, the limit is {min_agreement:.2%}"
            )
    return sentences
