"""`fedpriv.account`: how much privacy some rounds of noise spend."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedpriv._validate import require_choice
from fedpriv.privacy import accountants
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.planning.calibration import MECHANISMS
from fedpriv.privacy.planning.releases import gaussian_releases, laplace_releases

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fedpriv.privacy.accountants import Report
    from fedpriv.privacy.planning.releases import Releases


def account(
    *,
    noise_multiplier: float | Sequence[float],
    delta: float,
    adjacency: Adjacency | str,
    rounds: int | None = None,
    sampling_rate: float = 1.0,
    mechanism: str = "gaussian",
    accountant: str = "auto",
) -> Report:
    """Account for noise: an upper bound on ε, as `fedpriv account` prints it.

    >>> import fedpriv
    >>> report = fedpriv.account(
    ...     noise_multiplier=100, rounds=100, delta=1e-6, adjacency="replace-one"
    ... )
    >>> report.accountant, report.epsilon < 0.8342
    ('gdp', True)

    Args:
        noise_multiplier: Gaussian: standard deviation of the noise on the sum / clip norm,
            whatever the adjacency. Laplace: scale / sensitivity. A list has one per round.
        delta: δ, well below 1 / number of records.
        adjacency: The neighbouring data sets: "replace-one" or "add-remove".
        rounds: The number of rounds with that noise.
        sampling_rate: Poisson rate at which each record joins a round; 1 is full batch.
        mechanism: "gaussian", or "laplace" for one released number.
        accountant: A name, or "auto" for the tightest sound one.

    Returns:
        The bound with the accountant that proves it; ``epsilon`` is None, with a ``reason``, if
        there is no finite one.
    """
    released = releases(noise_multiplier, rounds, sampling_rate, adjacency, mechanism)
    return accountants.account(released, delta=delta, accountant=accountant)


def account_all(
    *,
    noise_multiplier: float | Sequence[float],
    delta: float,
    adjacency: Adjacency | str,
    rounds: int | None = None,
    sampling_rate: float = 1.0,
    mechanism: str = "gaussian",
) -> list[Report]:
    """Account for noise with every accountant; the arguments are those of `account`.

    >>> import fedpriv
    >>> reports = fedpriv.account_all(
    ...     noise_multiplier=100, rounds=100, delta=1e-6, adjacency="replace-one"
    ... )
    >>> min(reports, key=lambda report: report.epsilon).accountant
    'gdp'
    """
    released = releases(noise_multiplier, rounds, sampling_rate, adjacency, mechanism)
    return accountants.account_all(released, delta=delta)


def releases(
    noise_multiplier: float | Sequence[float],
    rounds: int | None,
    sampling_rate: float,
    adjacency: Adjacency | str,
    mechanism: str,
) -> Releases:
    """The events of rounds with such noise."""
    require_choice(MECHANISMS, mechanism=mechanism)
    make = gaussian_releases if mechanism == "gaussian" else laplace_releases
    relation = Adjacency(adjacency)
    return make(noise_multiplier, rounds=rounds, sampling_rate=sampling_rate, adjacency=relation)
