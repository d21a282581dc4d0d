"""The rule of a ledger: its owner fixes it when it is made, and no release can."""

from hashlib import sha256
from pathlib import Path

import pytest

from fedpriv.privacy.accountants import RdpAccountant, UnsupportedEvent
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.budget import Budget
from fedpriv.privacy.events import (
    ApproximateEvent,
    Event,
    PoissonGaussianEvent,
    SkellamEvent,
)
from fedpriv.privacy.ledger import BudgetRefusal, Kind, Ledger, Settings
from fedpriv.privacy.ledger.storage.chain import canonical_json
from fedpriv.privacy.ledger.storage.store import Store
from fedpriv.privacy.unit import Unit
from tests.privacy.ledger.ledgers import fresh, gaussian, kinds, pure

A = Adjacency.ADD_REMOVE
BUDGET = Budget(epsilon=1.0, delta=1e-6)
SAMPLED = PoissonGaussianEvent(relative_noise=8.0, sampling_rate=0.01, adjacency=A)
PAIR = ApproximateEvent(epsilon=0.1, delta=1e-8, adjacency=A)
SKELLAM = SkellamEvent(variance=1e6, l1_sensitivity=70, l2_sensitivity=10, adjacency=A)


@pytest.mark.parametrize("setting", ["gdp", "basic", "rdp", "rdp:16"])
def test_the_owner_fixes_the_rule_and_it_is_in_the_chain_before_any_charge(
    tmp_path: Path, setting: str
) -> None:
    with fresh(tmp_path, composition=setting) as ledger:
        assert kinds(ledger) == [Kind.CREATED, Kind.COMPOSITION]
        found = ledger.spent().to_dict()["composition"]
        assert found["mode"] == setting.partition(":")[0] == ledger.settings.composition
        assert found.get("order") == (16.0 if ":" in setting else found.get("order"))
        assert ledger.left().share == 1.0
        ledger.verify()


@pytest.mark.parametrize(("delta", "rule"), [(1e-6, "gdp"), (0.0, "basic")])
def test_without_a_word_the_rule_follows_from_the_budget(
    tmp_path: Path, delta: float, rule: str
) -> None:
    with Ledger.create(
        tmp_path / "test.ledger",
        data_name="clinic",
        budget=Budget(epsilon=1.0, delta=delta),
        adjacency=A,
    ) as ledger:
        assert kinds(ledger) == [Kind.CREATED, Kind.COMPOSITION]
        assert ledger.spent().to_dict()["composition"]["mode"] == rule


def test_a_nearly_free_release_decides_nothing_for_those_after_it(tmp_path: Path) -> None:
    """It once made a ledger ``gdp`` for life, and shares of noise were refused for ever.

    Nor may the first release choose an order: a large one would choose one that no other can pay.
    """
    for first in (gaussian(1e6), pure(0.9), SAMPLED):
        folder = tmp_path / first.kind
        folder.mkdir()
        with fresh(folder, composition="rdp") as ledger:
            before = ledger.spent().composition
            try:
                ledger.reserve(first, run="first", round=0)
            except BudgetRefusal:
                assert first == pure(0.9)
            assert ledger.spent().composition == before
            for number, event in enumerate((SKELLAM, gaussian(100), pure(0.01), SAMPLED)):
                ledger.reserve(event, run="other", round=number)
            ledger.verify()


def test_rdp_without_an_order_takes_the_best_for_gaussian_noise(tmp_path: Path) -> None:
    """So that a plan by Rényi divergences fits a ledger of its own budget, to the last round."""
    with fresh(tmp_path, composition="rdp") as ledger:
        count, low, high = 100, 10.0, 1000.0
        while high > low * (1 + 1e-12):
            middle = (low + high) / 2
            planned = RdpAccountant(adjacency=A).compose(gaussian(middle), count)
            low, high = (low, middle) if planned.epsilon(1e-6) <= 1 else (middle, high)
        release = gaussian(high)
        for number in range(count):
            ledger.reserve(release, run="run", round=number)
        assert ledger.left().share < 1e-6


@pytest.mark.parametrize("setting", ["rdp:", "rdp:1", "rdp:0.5", "rdp:inf", "rdp:nan", "rdp:x",
                                     "gdp:2", "auto:2", "renyi", "rdp:1.01"])  # fmt: skip
def test_a_rule_that_is_none_or_admits_nothing_makes_no_file(tmp_path: Path, setting: str) -> None:
    with pytest.raises(ValueError, match="composition"):
        fresh(tmp_path, composition=setting)
    assert not list(tmp_path.iterdir())


def test_a_tiny_budget_has_an_order_too(tmp_path: Path) -> None:
    with fresh(tmp_path, Budget(epsilon=1e-3, delta=1e-6), composition="rdp") as ledger:
        ledger.reserve(gaussian(1e5), run="run", round=0)


@pytest.mark.parametrize(
    ("setting", "event"),
    [("gdp", SKELLAM), ("gdp", PAIR), ("gdp", SAMPLED), ("rdp", PAIR), ("basic", SKELLAM)],
)
def test_what_has_no_price_is_refused_before_a_row_is_written(
    tmp_path: Path, setting: str, event: Event
) -> None:
    with fresh(tmp_path, composition=setting) as ledger:
        head = ledger.head
        with pytest.raises(UnsupportedEvent, match=f"{setting} composition cannot price") as caught:
            ledger.reserve(event, run="run", round=0)
        assert "in a ledger with" not in str(caught.value)  # no advice to take a second budget
        if setting != "basic":
            with pytest.raises(UnsupportedEvent):
                ledger.require_price([(event, 3)])
        else:
            ledger.require_price([(event, 3)], delta=1e-7)
        assert ledger.head == head


@pytest.mark.parametrize(
    ("setting", "first", "rule"),
    [("auto", gaussian(100), "gdp"), ("auto", SAMPLED, "rdp"), ("auto", PAIR, "basic"),
     ("rdp", SAMPLED, "rdp"), ("gdp", pure(0.01), "gdp")],
)  # fmt: skip
def test_a_ledger_of_an_earlier_version_keeps_its_meaning(
    tmp_path: Path, setting: str, first: Event, rule: str
) -> None:
    """It fixed no rule when it was made: its first charge still does, and it still verifies."""
    path, salt = tmp_path / "test.ledger", bytes(32)
    settings = Settings(
        data_name="clinic",
        budget=BUDGET,
        adjacency=A,
        unit=Unit.RECORD,
        composition=setting,
        salt_hash=sha256(salt).hexdigest(),
        version="0.1.0",
    )
    written = settings.to_dict()
    del written["unit"]  # ledgers were for records, and did not say so
    Store.create(path, salt=salt, details={Kind.CREATED: canonical_json(written)})
    with Ledger.open(path, unit="record") as ledger:
        assert ledger.spent().composition is None
        ledger.reserve(first, run="run", round=0)
        assert kinds(ledger) == [Kind.CREATED, Kind.COMPOSITION, Kind.RESERVED]
        assert ledger.spent().to_dict()["composition"]["mode"] == rule
        ledger.verify()
