"""The crew: threads that share the caller's work."""

import gc
import os
import signal
from threading import Barrier, Event, get_ident
from time import sleep

import pytest
import torch

from fedpriv.learning.crew import Crew, keep_to_own_processors, processors


def test_results_come_in_the_order_of_the_parts_and_the_caller_takes_the_first() -> None:
    crew = Crew(3)
    together = Barrier(3, timeout=30)  # passes only if the three parts run at once

    def work(part: int) -> tuple[int, int]:
        together.wait()
        return part, get_ident()

    for _ in range(3):
        results = crew.each(work, [10, 20, 30])
        assert [part for part, _ in results] == [10, 20, 30]
        threads = [thread for _, thread in results]
        assert threads[0] == get_ident()
        assert len(set(threads)) == 3


def test_every_part_is_computed_by_one_thread_and_the_setting_of_the_caller_returns() -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        crew = Crew(2)
        assert crew.each(lambda _part: torch.get_num_threads(), [0, 1]) == [1, 1]
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("bad", [0, 1])
def test_an_error_of_any_part_reaches_the_caller(bad: int) -> None:
    def work(part: int) -> None:
        if part == bad:
            raise ValueError("refused")

    crew = Crew(2)
    with pytest.raises(ValueError, match="refused"):
        crew.each(work, [0, 1])
    assert crew.each(lambda part: part, [0, 1]) == [0, 1]


def test_an_error_is_raised_when_no_part_is_at_work_any_more() -> None:
    """What the parts share is used again by the next call."""
    began, done = Event(), []

    def work(part: int) -> None:
        if part == 0:
            assert began.wait(30)
            raise ValueError("refused")
        began.set()
        sleep(0.2)
        done.append(part)

    with pytest.raises(ValueError, match="refused"):
        Crew(3).each(work, [0, 1, 2])
    assert sorted(done) == [1, 2]


def test_helpers_end_with_their_crew() -> None:
    """A study makes thousands of crews."""
    crew = Crew(2)
    crew.each(lambda part: part, [0, 1])
    (helper,) = crew._helpers
    assert helper.is_alive()
    del crew
    gc.collect()
    helper.join(30)
    assert not helper.is_alive()


def test_a_crew_works_in_a_copy_of_its_process() -> None:
    """Where its helpers are not: waiting for one would last for ever."""
    crew = Crew(2)
    crew.each(lambda part: part, [0, 1])
    child = os.fork()
    if child == 0:
        signal.alarm(30)
        os._exit(0 if crew.each(lambda part: part, [0, 1]) == [0, 1] else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert crew.each(lambda part: part, [0, 1]) == [0, 1]


def test_processors_that_may_not_be_chosen_stop_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError

    crew = Crew(2)
    crew.each(lambda part: part, [0, 1])
    monkeypatch.setattr(os, "sched_setaffinity", refuse, raising=False)
    assert crew.each(lambda part: part, [0, 1]) == [0, 1]


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="needs processor affinity")
def test_helpers_are_kept_off_the_processor_of_the_caller_and_the_caller_stays_free() -> None:
    allowed = os.sched_getaffinity(0)
    crew = Crew(2)
    crew.each(lambda part: part, [0, 1])  # the helper is known from its first work on
    caller, helper = crew.each(lambda _part: os.sched_getaffinity(0), [0, 1])
    assert caller == allowed
    assert helper < allowed if len(allowed) > 1 else helper == allowed
    assert len(helper) == max(1, len(allowed) - 1)


@pytest.mark.parametrize(
    ("count", "own"),
    [(1, [{2, 3, 5, 7}]), (2, [{2, 5}, {3, 7}]), (3, [{2, 7}, {3}, {5}]), (5, [None] * 5)],
)
def test_processes_of_one_machine_have_processors_of_their_own_if_there_are_enough(
    count: int, own: list[set[int] | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[set[int]] = []
    monkeypatch.setattr(os, "sched_getaffinity", lambda _thread: {2, 3, 5, 7}, raising=False)
    monkeypatch.setattr(
        os, "sched_setaffinity", lambda _thread, chosen: kept.append(set(chosen)), raising=False
    )
    for index, expected in enumerate(own):
        kept.clear()
        keep_to_own_processors(index, count)
        assert kept == ([] if expected is None else [expected])


def test_processors_are_those_that_the_process_may_use() -> None:
    assert 1 <= processors() <= (os.cpu_count() or 1)
