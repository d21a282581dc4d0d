"""`fedpriv schedule`: the number of rounds, and noise, cost and bound as numbers and pictures."""

from __future__ import annotations

from math import log, sqrt
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from fedpriv.privacy.accountants import account
from fedpriv.privacy.gaussian import gdp_mu
from fedpriv.privacy.planning.releases import gaussian_releases
from fedpriv.privacy.schedules import MomentumAware, momentum_step_limit
from fedpriv.simulations.schedule_pictures import text_curve

if TYPE_CHECKING:
    from pathlib import Path

    from tests.simulations.conftest import Command

PROBLEM = ("--records", 50_000, "--dimension", 100, "--kappa", 26)
BUDGET = ("--epsilon", 1, "--delta", 1e-6)


def test_plan_finds_the_rounds_of_the_closed_form(fedpriv: Command) -> None:
    """Dynamic noise: u = γ^(T/2) = a/(g + a) with a the noise term; see `best_rounds`."""
    uniform, dynamic = fedpriv("schedule", "plan", *BUDGET, *PROBLEM, "--json").json()
    convexity = 0.01
    smoothness, gamma = 0.25 + convexity, 1 - convexity / 0.26
    assert dynamic["gamma"] == pytest.approx(gamma)
    total = gdp_mu(epsilon=1.0, delta=1e-6) ** 2
    a = 100 / (2 * smoothness) / 50_000**2 * 4 / total / (1 - sqrt(gamma)) ** 2
    assert abs(dynamic["rounds"] - 2 * log(a / (log(2) + a)) / log(gamma)) <= 1
    assert dynamic["bound"] < uniform["bound"]
    assert uniform["gain"] == pytest.approx(1)
    assert dynamic["gain"] > 2
    text = fedpriv("schedule", "plan", *BUDGET, *PROBLEM).out
    assert f"dynamic: {dynamic['rounds']} rounds" in text


def test_replacing_a_record_needs_twice_the_noise(fedpriv: Command) -> None:
    common = ("schedule", "show", "uniform", *BUDGET, "--rounds", 7, "--json", "--adjacency")
    one, two = (fedpriv(*common, relation).json() for relation in ("add-remove", "replace-one"))
    assert two["noise_multipliers"][0] == pytest.approx(2 * one["noise_multipliers"][0])
    assert two["rho"] == pytest.approx(one["rho"])


@pytest.mark.parametrize("name", ["uniform", "dynamic", "momentum", "exponential", "step"])
def test_what_is_shown_spends_the_budget(fedpriv: Command, name: str) -> None:
    shown = fedpriv("schedule", "show", name, *BUDGET, "--rounds", 40, "--json").json()
    noise = shown["noise_multipliers"]
    assert len(noise) == len(shown["rho"]) == len(shown["bounds"]) == 40
    spent = account(gaussian_releases(noise, adjacency="replace-one"), delta=1e-6).epsilon
    assert spent == pytest.approx(1.0, rel=1e-9)
    assert sum(shown["rho"]) == pytest.approx(gdp_mu(epsilon=1.0, delta=1e-6) ** 2 / 2)
    assert shown["bounds"][-1] == pytest.approx(shown["bound"])


@pytest.mark.parametrize("name", ["uniform", "dynamic", "momentum", "exponential", "step"])
def test_no_bound_is_shown_where_gradients_are_clipped(
    fedpriv: Command, tmp_path: Path, name: str
) -> None:
    clipped = ("schedule", "show", name, "--rounds", 9, "--clip", 0.999)
    shown = fedpriv(*clipped, "--json").json()
    assert shown["bound"] is shown["bounds"] is shown["gain"] is None
    assert shown["no_bound"].startswith("clip = 0.999 is below the Lipschitz constant 1")
    done = fedpriv(*clipped, "--svg", tmp_path / "clipped.svg")
    assert "excess risk: no bound is known (clip = 0.999 is below" in done.out
    assert "<=" not in done.out
    assert "gain" not in done.out
    assert done.out.count("└") == 2
    free = fedpriv("schedule", "show", name, "--rounds", 9, "--clip", 1, "--json").json()
    assert free["bound"] > 0
    assert free["no_bound"] is None


def test_no_number_of_rounds_follows_without_a_bound(fedpriv: Command) -> None:
    done = fedpriv("schedule", "plan", *BUDGET, *PROBLEM, "--clip", 0.1)
    assert done.code == 2
    assert "no bound is known: clip = 0.1 is below the Lipschitz constant 1" in done.message


def test_momentum_is_shown_with_the_step_that_its_bound_is_proved_for(fedpriv: Command) -> None:
    shown = fedpriv("schedule", "show", "momentum", "--beta", 0.8, "--kappa", 26, "--json").json()
    limit = momentum_step_limit(smoothness=0.26, strong_convexity=0.01, beta=0.8)
    assert shown["step"] == pytest.approx(limit)
    assert shown["gamma"] == pytest.approx(1 - 0.01 * limit)


def test_a_plan_with_momentum_has_the_step_and_the_bound_of_its_theorem(fedpriv: Command) -> None:
    command = ("schedule", "plan", *BUDGET, *PROBLEM, "--beta", 0.8, "--most", 3000, "--json")
    uniform, aware = fedpriv(*command).json()
    assert (uniform["schedule"], aware["schedule"]) == ("uniform", "momentum")
    limit = momentum_step_limit(smoothness=0.26, strong_convexity=0.01, beta=0.8)
    gamma, total = 1 - 0.01 * limit, gdp_mu(epsilon=1.0, delta=1e-6) ** 2 / 4
    noise = MomentumAware(gamma=gamma, beta=0.8).noise(aware["rounds"], total=total)
    risk = log(2)  # the theorem, unrolled: f* + γ·(…) + η·d·(noise left in v̂), round by round
    moving = np.zeros(aware["rounds"])
    for t, sigma in enumerate(noise, start=1):
        moving *= 0.8
        moving[t - 1] = 0.2
        left = np.sum((moving[:t] / (1 - 0.8**t)) ** 2 * noise[:t] ** 2)
        risk = gamma * risk + limit * 100 / 50_000**2 * left
        assert sigma > 0
    assert aware["bound"] == pytest.approx(risk)
    assert aware["bound"] < uniform["bound"]


def test_the_advantage_is_the_ratio_of_the_bounds_that_a_plan_has(
    fedpriv: Command, tmp_path: Path
) -> None:
    common = (*BUDGET, "--records", 50_000, "--dimension", 100, "--most", 400)
    span = ("--from", 2, "--to", 50, "--points", 3)
    picture = tmp_path / "advantage.svg"
    found = fedpriv(
        "schedule", "advantage", *common, *span, "--svg", picture, "--json"
    ).json()  # fmt: skip
    assert [round(one["kappa"], 6) for one in found] == [2, 10, 50]
    for one in found:
        plan = ("schedule", "plan", *common, "--kappa", repr(one["kappa"]), "--json")
        uniform, dynamic = fedpriv(*plan).json()
        assert one["uniform_rounds"] == uniform["rounds"]
        assert one["dynamic_bound"] == dynamic["bound"]
        assert one["advantage"] == uniform["bound"] / dynamic["bound"] >= 1
    assert found[0]["advantage"] > 2 > found[-1]["advantage"]  # conditioning is what it needs
    assert picture.read_text().startswith("<?xml")


def test_no_advantage_is_claimed_where_a_bound_says_nothing(fedpriv: Command) -> None:
    command = ("schedule", "advantage", "--records", 50, "--points", 2, "--most", 5)
    assert [one["advantage"] for one in fedpriv(*command, "--json").json()] == [None, None]
    text = fedpriv(*command).out
    assert text.count("–") == 2
    assert "└" not in text


def test_show_draws_three_curves_and_a_picture(fedpriv: Command, tmp_path: Path) -> None:
    target = tmp_path / "dynamic.svg"
    done = fedpriv("schedule", "show", "dynamic", "--rounds", 30, "--kappa", 10, "--svg", target)
    assert done.code == 0, done.err
    assert done.out.count("└") == 3
    assert target.read_text().startswith("<?xml")
    again = tmp_path / "again.svg"
    fedpriv("schedule", "show", "dynamic", "--rounds", 30, "--kappa", 10, "--svg", again)
    assert again.read_bytes() == target.read_bytes()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("show", "dynamik"), "Did you mean 'dynamic'"),
        (("show", "dynamic", "--kappa", 1), "kappa must be above 1"),
        (("show", "step", "--every", 0), "every must be an integer of at least 1"),
        (("show", "dynamic", "--gamma", 1.5), "gamma must lie strictly between 0 and 1"),
        (("plan", "--epsilon", 1, "--delta", 0, *PROBLEM), "delta must be positive"),
        (("advantage", "--from", 1), "kappa must range from above 1 upwards"),
        (("advantage", "--points", 0), "points must be an integer of at least 1"),
    ],
)
def test_bad_input_is_one_message(fedpriv: Command, arguments: Any, reason: str) -> None:
    done = fedpriv("schedule", *arguments)
    assert done.code == 2
    assert reason in done.message


def test_a_curve_falls_where_its_values_fall() -> None:
    drawn = text_curve(np.array([5.0, 4.0, 1.0]), title="t").splitlines()
    columns = {line.index("●", 12): row for row, line in enumerate(drawn) if "●" in line}
    assert list(dict(sorted(columns.items())).values()) == sorted(columns.values())
    assert "5 ┤●" in drawn[1]
