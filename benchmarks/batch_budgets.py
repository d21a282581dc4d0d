"""Batch budgets of learned protection: what could be gained by choosing them (L2P, Eqs. 5 to 7).

    FEDPRIV_DATA=… python -m benchmarks batch_budgets

The paper trains in batches of steps and optimises the budget r_b of every batch. A fixed profile of
noise, r_b ∝ exp(tilt·b), spends the same budget earlier (tilt < 0) or later (tilt > 0); tilt = 0 is
what the training here takes. If no tilt lowers the loss, there is nothing for a choice to find.
Public records only; without FEDPRIV_DATA there are none, and nothing is measured.
"""

from __future__ import annotations

from dataclasses import replace
from math import exp, sqrt
from os import environ

import numpy as np
import torch

from fedpriv.learning.protector import Allowance, Protector, State, Surroundings, final_models
from fedpriv.learning.protector import load as load_protector
from fedpriv.learning.threads import one_thread
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.gaussian import gdp_mu
from fedpriv.simulations.public.auxiliary_tasks import auxiliary_tasks
from fedpriv.strategies.learned_protection import protector_path

EPSILONS, TILTS = (0.025, 0.1, 0.4), (-2.0, -1.0, 0.0, 1.0, 2.0)
HORIZON, BATCH, RUNS, RECORDS = 60, 20, 8, 2000


class Tilted(Protector):
    """A protector whose scheduler is replaced by a profile: exp(tilt·b) for the batches b."""

    def __init__(self, own: Protector, *, tilt: float, norm_share: float) -> None:
        super().__init__(gated=own.gated)
        self.load_state_dict(own.state_dict())
        places = np.arange(HORIZON // BATCH) * BATCH / HORIZON
        shares = np.exp(tilt * places)
        self._costs = shares / shares.mean()  # of a step, in rounds of the reference
        self._norm_share = norm_share

    def schedule(
        self,
        norm: torch.Tensor,
        *,
        elapsed: float,
        left: torch.Tensor,
        around: Surroundings,
        state: State,
    ) -> tuple[torch.Tensor, State]:
        """The noise of the batch that the step is in, whatever the norm was."""
        batch = min(int(elapsed * HORIZON + 0.5) // BATCH, len(self._costs) - 1)
        gradient = (self._costs[batch] - self._norm_share) / (1 - self._norm_share)
        return torch.full_like(norm, 1 / sqrt(gradient)), state


def main() -> None:
    if "FEDPRIV_DATA" not in environ:
        print("skipped: it needs mnist.npz in the folder that FEDPRIV_DATA names")
        return
    trained = load_protector(protector_path("mnist-4v6"))
    card = trained.card
    ((train, test),) = auxiliary_tasks(
        ("mnist:4v6",), ("logistic",), hidden=1, clip=card.clip_norm, root=None
    )
    moved = Adjacency.ADD_REMOVE.sum_sensitivity / len(train.labels)
    print("epsilon  tilt  ln of the objective     accuracy")
    for epsilon in EPSILONS:
        noise = moved / gdp_mu(epsilon=epsilon, delta=1e-8)
        allowance = Allowance(noise=noise, horizon=HORIZON, norm_share=card.norm_share)
        for tilt in TILTS:
            generator = torch.Generator().manual_seed(0)
            task = replace(train.sample(RECORDS, generator), regulariser=1e-4)
            chooser = Tilted(trained.protector, tilt=tilt, norm_share=card.norm_share)
            models = final_models(
                chooser.requires_grad_(False), task, allowance, runs=RUNS, generator=generator
            )
            loss, right = task.look(models).loss.log(), 100 * test.accuracy(models)
            print(
                f"{epsilon:<8g} {tilt:>5g}  {_told(loss):<22} {_told(right)}   "
                f"last over first noise {exp(-tilt * (1 - BATCH / HORIZON) / 2):.2f}",
                flush=True,
            )


def _told(values: torch.Tensor) -> str:
    half = 2.365 * float(values.std()) / sqrt(len(values))  # Student's t, 7 degrees of freedom
    return f"{float(values.mean()):.3f} ± {half:.3f}"


if __name__ == "__main__":
    with one_thread():
        main()
