"""Setting of a cost prediction, from an experiment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedpriv.federation.cost.setting import Setting
from fedpriv.federation.queries import encoding
from fedpriv.secagg import Mode
from fedpriv.simulations.run.prepare import build_strategy, prepare

if TYPE_CHECKING:
    from fedpriv.simulations.experiment.file import Experiment


def setting_of(experiment: Experiment) -> Setting:
    """What the experiment asks for: its parties, its first query, its masks.

    An engine that masks nothing is taken as one in semi-honest mode.
    """
    prepared = prepare(experiment)
    section, privacy = experiment.run, experiment.privacy
    strategy = build_strategy(prepared, run=prepared.run)
    query = strategy.ask()
    if query is None:
        raise ValueError(f"strategy {strategy.name!r} asks for no sum: there is nothing to mask.")
    dimension = query.answer_width(prepared.task)
    return Setting(
        parties=prepared.task.parties,
        dimension=dimension,
        mode=Mode.SEMI_HONEST if section.level == "off" else Mode(section.level),
        rounds=max(1, strategy.rounds),
        dropout=section.dropout,
        colluding=privacy.colluding,
        noise_at="server" if query.share is None else "parties",
        bits=query.grid.bits,
        query_bytes=max(0, len(encoding.to_bytes(query)) - 8 * dimension),
    )
