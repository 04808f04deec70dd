"""Independent parts of what NumPy computes."""

import threading
import time

import pytest

from hearthd.models.dsl.threads import in_threads


def test_results_are_in_the_order_of_the_parts() -> None:
    def waited(part: int) -> int:
        time.sleep(0.002 * (5 - part))  # later parts end first
        return part

    assert in_threads(waited, range(5)) == list(range(5))


def test_a_part_computes_its_own_parts() -> None:
    def thread(_: int) -> int:
        return threading.get_ident()

    def threads(part: int) -> tuple[int, list[int]]:
        return thread(part), in_threads(thread, range(3))

    for own, inner in in_threads(threads, range(4)):
        assert inner == [own] * 3
        assert own != threading.get_ident()


def test_an_error_of_a_part_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        in_threads(lambda part: 1 // part, [1, 0])
