"""Complaints of a server are written sparingly, however many somebody provokes."""

from __future__ import annotations

import logging
from logging.config import dictConfig
from typing import TYPE_CHECKING

from uvicorn.config import LOGGING_CONFIG

from fedpriv.simulations.deploy.flower.sparing import LOGGERS, Sparing, spare

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest


def complaint(
    words: str = "refused", *given: object, level: int = logging.ERROR
) -> logging.LogRecord:
    return logging.LogRecord("flwr", level, "a.py", 1, words, given, None)


def written(spare: Sparing, count: int, level: int = logging.ERROR) -> list[str]:
    records = [complaint("refused", level=level) for _ in range(count)]
    return [each.getMessage() for each in records if spare.filter(each)]


def test_a_flood_of_complaints_is_a_few_lines() -> None:
    now = [0.0]
    spare = Sparing(clock=lambda: now[0])
    assert len(written(spare, 10_000)) == 50
    now[0] += 3.5
    assert written(spare, 100) == [
        "refused (9950 lines before it were left out)",
        "refused",
        "refused",
    ]
    now[0] += 1e6
    assert len(written(spare, 100)) == 50


def test_what_is_no_complaint_is_written_as_it_comes() -> None:
    spare = Sparing(clock=lambda: 0.0)
    assert len(written(spare, 1000, level=logging.INFO)) == 1000


def test_a_complaint_is_one_line_and_not_a_long_one() -> None:
    record = complaint("refused %s", "a\nFORGED: all is well\x1b[2J" + "x" * 10_000)
    assert Sparing().filter(record)
    told = record.getMessage()
    assert told.isprintable()
    assert len(told) == 1000


def test_servers_that_set_up_their_logs_later_are_spared_as_well(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def kept() -> Iterator[bool]:
        for name in LOGGERS:
            yield any(isinstance(each, Sparing) for each in logging.getLogger(name).filters)

    before = {name: list(logging.getLogger(name).filters) for name in LOGGERS}
    try:
        spare()
        dictConfig({**LOGGING_CONFIG, "handlers": {}, "loggers": {"uvicorn.error": {}}})
        assert all(kept())
        with caplog.at_level(logging.WARNING, logger="uvicorn.error"):
            for _ in range(200):
                logging.getLogger("uvicorn.error").warning("Invalid HTTP request received.")
        assert 50 <= len(caplog.records) <= 60
    finally:
        for name, filters in before.items():
            logging.getLogger(name).filters[:] = filters
