"""Hand over the model: what a run released goes to every party that paid for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedpriv.federation.protocol.errands import MOST_MODEL, HandedOver, HandOver
from fedpriv.simulations.deploy.run.jobs.errands import DONE, PATIENCE, send
from fedpriv.simulations.run.model_file import NAME

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from flwr.serverapp import Grid

    from fedpriv.federation.engines.courier import Patience
    from fedpriv.federation.engines.seals import Seal
    from fedpriv.privacy.statement.signed import SignedStatement


def hand_over(
    signed: SignedStatement,
    directory: Path,
    grid: Grid,
    *,
    names: tuple[str, ...],
    seal: Seal,
    patience: Patience = PATIENCE,
    spared: Collection[int] = (),
) -> dict[str, str]:
    """Send the model of a finished run to every party that is there; what came of it, for each.

    A party that was away gets it when this is done again.

    Raises:
        ValueError: The model is too large to be sent.
    """
    if not (directory / NAME).exists():
        raise ValueError(
            f"the run in {str(directory)!r} released no model to hand over: statistics.json, whose "
            "digest is in the statement, is for everybody."
        )
    model = (directory / NAME).read_bytes()
    if len(model) > MOST_MODEL:
        raise ValueError(
            f"{str(directory / NAME)!r} must have at most {MOST_MODEL} bytes to be handed over, "
            f"got {len(model)}. Give it to the parties by other means, with the statement, which "
            "names its digest."
        )
    text = signed.to_text().encode()
    outcome = send(
        grid,
        "handover",
        lambda run: HandOver(run=run, round=0, party=0, statement=text, model=model),
        names=names,
        expected=HandedOver,
        seal=seal,
        patience=patience,
        spared=spared,
    )
    return {name: "has it" if said == DONE else said for name, said in outcome.words.items()}
