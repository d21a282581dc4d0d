"""Statements, against golden files, and the warnings that must not be forgotten.

`python -m tests.privacy.statement.test_statement` rewrites the golden files; read the difference
before committing it.
"""

import json
import re
from dataclasses import replace
from math import sqrt
from pathlib import Path
from typing import Any

import pytest
import yaml

from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.budget import Budget
from fedpriv.privacy.conversions import group_privacy
from fedpriv.privacy.planning.gradient import gradient_plan
from fedpriv.privacy.planning.output import output_plan
from fedpriv.privacy.planning.shares import Sharing, shared_noise
from fedpriv.privacy.statement import (
    LedgerFacts,
    RunFacts,
    Statement,
    TrustModel,
    make_statement,
    to_registry_yaml,
    to_text,
)
from fedpriv.privacy.statement.statement import POINTS_SEEN, who_sees_what
from fedpriv.privacy.unit import Unit, neighbours_in_words, person_steps

GOLDEN = Path(__file__).parent / "golden"
SIZES = [969, 512, 130, 10]


def output_statement(**changes: Any) -> Statement:
    plan = output_plan(
        budget=Budget(epsilon=0.5, delta=0),
        sensitivity=max(n / sum(SIZES) * (2 / (n * 0.01) + 2e-8 / 0.01) for n in SIZES),
        sizes=SIZES,
        dimension=5,
        step=2.0**-30,
        law="l1-laplace",
    )
    facts = RunFacts(
        run="output-7",
        data="chem97",
        simulated=False,
        randomness="operating system",
        sampler="full batch",
        records_per_person=2,
        date="2026-01-31",
    )
    trust = TrustModel(
        secure_aggregation="active", colluding_parties=1, dropped_parties=1, least_parties=3
    )
    ledger = LedgerFacts(
        budget_epsilon=2.0, budget_delta=1e-6, spent_before_epsilon=0.75, head="5f" * 32, rows=12
    )
    return make_statement(plan, facts=replace(facts, **changes), trust=trust, ledger=ledger)


def gradient_statement(**changes: Any) -> Statement:
    plan = gradient_plan(
        budget=Budget(epsilon=1, delta=1e-6),
        rounds=100,
        sensitivity=2.0,
        clip_norm=1.0,
        sizes=SIZES,
        dimension=5,
        step=2.0**-20,
        adjacency="replace-one",
        shape=[1 + t / 100 for t in range(100, 0, -1)],
    )
    facts = RunFacts(
        run="gradient-7", data="chem97", simulated=True, randomness="seeded", sampler="full batch"
    )
    trust = TrustModel(secure_aggregation="ideal")
    return make_statement(plan, facts=replace(facts, **changes), trust=trust)


def shares_statement(*, trust: TrustModel | None = None, **changes: Any) -> Statement:
    plan = gradient_plan(
        budget=Budget(epsilon=1, delta=1e-6),
        rounds=100,
        sensitivity=2.0,
        clip_norm=1.0,
        sizes=SIZES * 5,
        dimension=5,
        step=2.0**-16,
        adjacency="replace-one",
    )
    mechanisms = shared_noise(
        budget=plan.budget,
        sharing=Sharing(parties=20, dropout=0.1, colluding=0.1),
        l1_sensitivity=2.0**17 * sqrt(5) + 5,
        l2_sensitivity=2.0**17 + sqrt(5),
        dimension=5,
        step=plan.step,
        adjacency=plan.adjacency,
        shape=(1.0,) * 100,
    )
    facts = RunFacts(
        run="shares-7",
        data="chem97",
        simulated=False,
        randomness="operating system",
        sampler="full batch",
        date="2026-01-31",
    )
    ledger = LedgerFacts(
        budget_epsilon=2.0, budget_delta=1e-5, spent_before_epsilon=0.0, head="5f" * 32, rows=202
    )
    return make_statement(
        replace(plan, mechanisms=mechanisms, noise_at="parties", accountant="auto"),
        facts=replace(facts, **changes),
        trust=trust
        or TrustModel(
            secure_aggregation="active", colluding_parties=2, dropped_parties=2, least_parties=18
        ),
        ledger=ledger,
    )


STATEMENTS = {
    "output": output_statement,
    "gradient": gradient_statement,
    "shares": shares_statement,
}
RENDERERS = {
    "txt": to_text,
    "json": lambda statement: json.dumps(statement.to_dict(), indent=2, allow_nan=False) + "\n",
    "yaml": to_registry_yaml,
}


def short_floats(text: str) -> str:
    """Nine digits of every number: the last ones depend on the machine's mathematics."""
    return re.sub(r"\d+\.\d+(e-?\d+)?", lambda match: f"{float(match[0]):.9g}", text)


@pytest.mark.parametrize("strategy", STATEMENTS)
@pytest.mark.parametrize("form", RENDERERS)
def test_a_statement_reads_as_it_was_approved(strategy: str, form: str) -> None:
    golden = (GOLDEN / f"{strategy}.{form}").read_text()
    assert short_floats(RENDERERS[form](STATEMENTS[strategy]())) == short_floats(golden)


def test_a_simulation_says_so_before_anything_else() -> None:
    statement = gradient_statement()
    assert to_text(statement).startswith("SIMULATED: no privacy was spent\n")
    assert to_registry_yaml(statement).startswith("# SIMULATED: no privacy was spent\n")
    assert next(iter(statement.to_dict().values())) == "SIMULATED: no privacy was spent"
    assert "SIMULATED" not in to_text(output_statement())


def test_a_real_run_with_a_seed_is_refused() -> None:
    with pytest.raises(ValueError, match="randomness must be 'operating system' for a real run"):
        gradient_statement(simulated=False)


def test_a_person_with_several_records_is_told_their_own_guarantee() -> None:
    statement = gradient_statement(records_per_person=3)
    assert statement.per_person == group_privacy(
        epsilon=statement.epsilon, delta=statement.delta, size=3
    )


@pytest.mark.parametrize(
    ("changes", "warning"),
    [
        ({"sampler": "shuffled batches"}, "the stated epsilon does not hold"),
        ({"audit_epsilon": 1.9}, "the implementation is broken"),
        ({"metrics_published": True}, "outside the guarantee"),
    ],
)
def test_what_breaks_the_guarantee_is_a_warning(changes: dict[str, Any], warning: str) -> None:
    assert not gradient_statement().warnings
    statement = gradient_statement(**changes)
    assert any(warning in line for line in statement.warnings)
    assert "WARNINGS" in to_text(statement)


def test_a_delta_that_allows_publishing_records_is_a_warning() -> None:
    plan = gradient_plan(
        budget=Budget(epsilon=1, delta=1e-3), rounds=1, sensitivity=2, clip_norm=1, sizes=[500],
        dimension=1, step=1e-6, adjacency="replace-one",
    )  # fmt: skip
    facts = RunFacts(
        run="r", data="d", simulated=False, randomness="operating system", sampler="full batch"
    )
    statement = make_statement(plan, facts=facts, trust=TrustModel(secure_aggregation="off"))
    text = " ".join(statement.warnings)
    assert "not small against 1/N" in text
    assert "sees every party's exact answer" in text
    assert "no ledger was kept" in text


@pytest.mark.parametrize(("sizes", "warned"), [([500], False), ([250, 250], True)])
def test_records_in_one_place_are_stated_as_such(sizes: list[int], warned: bool) -> None:
    plan = gradient_plan(
        budget=Budget(epsilon=1, delta=1e-6), rounds=1, sensitivity=2, clip_norm=1, sizes=sizes,
        dimension=1, step=1e-6, adjacency="replace-one",
    )  # fmt: skip
    facts = RunFacts(
        run="r", data="d", simulated=False, randomness="operating system", sampler="full batch"
    )
    statement = make_statement(plan, facts=facts, trust=TrustModel(secure_aggregation="one-place"))
    assert any("one process held all records" in line for line in statement.sees)
    assert any("in one place" in line for line in statement.warnings) == warned
    assert not any("secure aggregation" in line for line in statement.warnings)


@pytest.mark.parametrize(
    ("trust", "warning"),
    [
        (TrustModel(secure_aggregation="off"), "carries 1/16 of the noise"),
        (
            TrustModel(secure_aggregation="semi-honest", least_parties=17),
            "sums of 17 parties may be opened, and the noise is sized for 18",
        ),
        (
            TrustModel(secure_aggregation="active", colluding_parties=3, least_parties=18),
            "3 parties may collude, and the noise is sized for 2",
        ),
    ],
    ids=["no masks", "too few", "too many colluders"],
)
def test_a_protocol_that_allows_more_than_the_shares_were_sized_for_is_a_warning(
    trust: TrustModel, warning: str
) -> None:
    assert not shares_statement().warnings
    (message,) = [said for said in shares_statement(trust=trust).warnings if "epsilon" in said]
    assert warning in message
    assert "the stated epsilon does not hold" in message


@pytest.mark.parametrize("where", ["one-place", "off", "ideal", "semi-honest", "active"])
@pytest.mark.parametrize("also", ["", "exact sums of gradients over all parties"])
def test_of_a_joint_fit_it_is_said_that_parties_see_its_points(where: Any, also: str) -> None:
    """But not where one process held all records: nobody was asked."""
    trust = TrustModel(secure_aggregation=where, server_also_sees=also)
    sees = who_sees_what(trust, noise_at="server", released="the end", parties=9, share=None)
    assert (POINTS_SEEN in sees) == (bool(also) and where != "one-place")


def _write_golden() -> None:
    for strategy, make in STATEMENTS.items():
        for form, render in RENDERERS.items():
            (GOLDEN / f"{strategy}.{form}").write_text(render(make()))


# Whose privacy.


@pytest.mark.parametrize("adjacency", Adjacency)
@pytest.mark.parametrize("unit", Unit)
def test_a_statement_says_whose_privacy_it_is_about_wherever_it_says_something(
    unit: Unit, adjacency: Adjacency
) -> None:
    made = stated_for(unit, adjacency, records_per_person=3)
    values, text = made.to_dict(), " ".join(to_text(made).split())
    guarantee = values["guarantee"]
    assert guarantee["unit"] == values["plan"]["unit"] == unit.value
    assert guarantee["neighbours"] == neighbours_in_words(unit, adjacency)
    assert {event["unit"] for event, _ in values["releases"]} == {unit.value}
    assert {each["unit"] for each in values["plan"]["mechanisms"]} == {unit.value}
    assert f"unit: {unit.words}" in text
    assert f"({neighbours_in_words(unit, adjacency)})" in text
    loss = yaml.safe_load(to_registry_yaml(made))["deployment"]["privacy_loss"]
    assert loss["privacy_unit"] == unit.value.capitalize()
    assert neighbours_in_words(unit, adjacency) in loss["privacy_unit_details"]
    public = (unit, adjacency) == (Unit.RECORD, Adjacency.REPLACE_ONE)
    declared = f"the number of {unit.counted} that was declared" in text
    assert declared is not public


@pytest.mark.parametrize(
    ("unit", "adjacency", "steps", "number", "clipped"),
    [
        (Unit.RECORD, "replace-one", 3, "N = 1621 records", "each record's gradient"),
        (Unit.PERSON, "replace-one", 1, "N = 1621 persons", "the sum of each person's gradients"),
        (Unit.PARTY, "replace-one", 3, "N = 4 parties", "each party's update"),
        (Unit.PARTY, "add-remove", 6, "N = 4 parties", "each party's update"),
    ],
)
def test_what_a_person_loses_follows_from_the_unit(
    unit: Unit, adjacency: str, steps: int, number: str, clipped: str
) -> None:
    made = stated_for(unit, Adjacency(adjacency), records_per_person=3)
    expected = group_privacy(epsilon=made.epsilon, delta=made.delta, size=steps)
    assert made.per_person == expected
    text = " ".join(to_text(made).split())
    assert number in text
    assert f"{clipped} " in text
    assert "is clipped to norm 1" in text


def test_more_records_than_parties_are_at_no_more_than_all_of_them() -> None:
    assert person_steps(Unit.PARTY, Adjacency.REPLACE_ONE, records=100, parties=4) == 4
    assert person_steps(Unit.RECORD, Adjacency.REPLACE_ONE, records=100, parties=4) == 100


def test_what_was_declared_of_a_person_is_stated() -> None:
    bounded = stated_for(Unit.PERSON, person_records=5, person_parties=2)
    said = "all records of one person (at most 5 at one party, at no more than 2 parties) of"
    assert said in " ".join(to_text(bounded).split())
    free = stated_for(Unit.PERSON)
    assert "(any number at one party, at no more than 1 party)" in " ".join(to_text(free).split())


def stated_for(unit: Unit, adjacency: Adjacency = Adjacency.REPLACE_ONE, **facts: Any) -> Statement:
    plan = gradient_plan(
        budget=Budget(epsilon=1, delta=1e-6),
        rounds=2,
        sensitivity=adjacency.sum_sensitivity,
        clip_norm=1.0,
        sizes=SIZES,
        dimension=5,
        step=2.0**-20,
        adjacency=adjacency,
        unit=unit,
    )
    real = RunFacts(
        run="units-7",
        data="chem97",
        simulated=False,
        randomness="operating system",
        sampler="full batch",
        **facts,
    )
    return make_statement(plan, facts=real, trust=TrustModel(secure_aggregation="ideal"))


if __name__ == "__main__":
    _write_golden()
