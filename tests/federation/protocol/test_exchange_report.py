"""What a server keeps of the words of parties."""

from __future__ import annotations

from fedpriv.federation.exchange_report import Report, Tally


def test_refusals_are_counted_by_kind_and_by_words() -> None:
    tally = Tally()
    for words in ("QueryRefused: too much", "QueryRefused: too little", "QueryRefused: too much"):
        tally.refused(words)
    report = tally.report()
    assert report.rejected == {"refused: QueryRefused": 3}
    assert report.refusals == {"QueryRefused: too little": 1, "QueryRefused: too much": 2}
    assert report.to_dict()["refusals"] == report.refusals
    assert report.complaint == (
        "Not accepted so far: {'refused: QueryRefused': 3}. Parties refused: 1 × QueryRefused: too "
        "little | 2 × QueryRefused: too much"
    )


def test_where_nobody_refused_nobody_is_quoted() -> None:
    assert Report(rejected={"silent": 2}).complaint == "Not accepted so far: {'silent': 2}."


def test_a_party_cannot_write_lines_of_its_own_into_a_log() -> None:
    tally = Tally()
    tally.refused("no\nINFO: all is well\x1b[2J")
    assert list(tally.report().refusals) == ["no?INFO: all is well?[2J"]
    assert list(tally.report().rejected) == ["refused"]


def test_a_party_that_never_says_the_same_twice_does_not_fill_the_memory() -> None:
    tally = Tally()
    for number in range(1000):
        tally.refused(f"QueryRefused: {number}")
    refusals = tally.report().refusals
    assert sum(refusals.values()) == 1000
    assert len(refusals) == 17
    assert refusals["other reasons"] == 984
