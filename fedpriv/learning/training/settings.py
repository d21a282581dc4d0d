"""Settings of local SGD: what every party does between two exchanges of federated averaging."""

from __future__ import annotations

from dataclasses import dataclass

from fedpriv._validate import require_count, require_non_negative, require_positive

_LONGEST = 2.0**400  # of clip norms


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalSgd:
    """Local SGD from the common parameters θ: epochs or steps over shuffled batches.

    One step on a batch B, from w = θ and v = 0:

        v ← β·v + (1/|B|)·Σ_B ∇f(w) + λ·w + μ·(w - θ) + shift
        w ← w - η·v

    where the shift is zero but for SCAFFOLD (Karimireddy et al. 2020, arXiv:1910.06378), whose
    parties add the difference of two control variates; μ is the proximal term of FedProx (Li et al.
    2020, arXiv:1812.06127). A party goes through its records in a fresh random order in every
    epoch; the last batch of an epoch may be smaller. A party without records takes no step.

    Attributes:
        epochs: How often a party goes through its records; None if ``steps`` is given.
        steps: How many steps every party takes, whatever its size; None if ``epochs`` is given.
        batch_size: Records in a batch; None for all of a party.
        learning_rate: η.
        momentum: β in [0, 1).
        proximal: μ.
        regulariser: λ.
    """

    epochs: int | None = None
    steps: int | None = None
    batch_size: int | None = None
    learning_rate: float
    momentum: float = 0.0
    proximal: float = 0.0
    regulariser: float = 0.0

    def __post_init__(self) -> None:
        if (self.epochs is None) == (self.steps is None):
            raise ValueError(
                "exactly one of epochs and steps must be given, "
                f"got epochs = {self.epochs!r} and steps = {self.steps!r}."
            )
        counts = {"epochs": self.epochs, "steps": self.steps, "batch_size": self.batch_size}
        require_count(**{name: value for name, value in counts.items() if value is not None})
        require_positive(learning_rate=self.learning_rate)
        require_non_negative(
            momentum=self.momentum, proximal=self.proximal, regulariser=self.regulariser
        )
        if self.momentum >= 1:
            raise ValueError(f"momentum must lie in [0, 1), got {self.momentum!r}.")

    def batches(self, records: int) -> int:
        """Batches in an epoch of a party with so many records."""
        return -(-records // (self.batch_size or max(1, records)))

    def steps_with(self, records: int) -> int:
        """The number of steps of a party with so many records; none without records."""
        if records == 0:
            return 0
        return self.steps if self.epochs is None else self.epochs * self.batches(records)  # type: ignore[return-value]


def require_clip_norm(clip_norm: float) -> None:
    """Refuse a clip norm whose square vanishes or overflows."""
    require_positive(clip_norm=clip_norm)
    if not 1 / _LONGEST <= clip_norm <= _LONGEST:
        raise ValueError(f"clip_norm must lie in [2^-400, 2^400], got {clip_norm!r}.")
