"""Claims about Opacus: DP-SGD with its data loader, or with your own shuffled one.

As opacus 1.6.0 has it, in `opacus.privacy_engine` and `opacus.accountants`. Its optimiser adds
noise of standard deviation z·C to the sum of clipped gradients and divides by the expected batch,
which is public. All its accountants assume Poisson samples at rate 1 / (batches of a pass),
whatever is run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fedpriv._validate import require_choice, require_count, require_open_unit, require_positive
from fedpriv.audit.claims.gaussian import FULL, POISSON, SHUFFLED, proved
from fedpriv.audit.claims.verdict import Claim, Verdict

_LIMIT_THEOREM = (
    "The accountant 'gdp' is a limit theorem, no bound: it may print less than is spent."
)
_SIZE = (
    "how many records there are, of which rate and divisor follow, is taken to be public and the "
    "same for both of two neighbours"
)
_ACCOUNTANTS = ("prv", "rdp", "gdp")


@dataclass(frozen=True, slots=True, kw_only=True)
class OpacusClaim(Claim):
    """`PrivacyEngine.make_private`, and the ε that one of its accountants prints.

    Attributes:
        noise_multiplier: As the engine is given it.
        sample_rate: 1 / (batches of a pass), as the accountants are given it.
        steps: How many.
        poisson_sampling: As the engine is given it; without it the loader stays as it was.
        accountant: By which ε was computed.
        secure_mode: As the engine is given it.
    """

    kind: ClassVar[str] = "opacus"
    about: ClassVar[str] = "DP-SGD of Opacus, with poisson_sampling or without"
    source: ClassVar[str] = "opacus 1.6.0"
    noise_multiplier: float
    sample_rate: float
    steps: int
    poisson_sampling: bool = True
    accountant: str = "prv"
    secure_mode: bool = False

    def __post_init__(self) -> None:
        Claim.__post_init__(self)
        require_positive(noise_multiplier=self.noise_multiplier)
        require_count(steps=self.steps)
        require_open_unit(delta=self.delta)
        require_choice(_ACCOUNTANTS, accountant=self.accountant)
        if not 0 < self.sample_rate <= 1:
            raise ValueError(f"sample_rate must be in (0, 1], got {self.sample_rate!r}.")

    def judged(self) -> Verdict:
        """By how batches are really drawn."""
        sampling = POISSON if self.poisson_sampling else SHUFFLED
        found = proved(
            noise=self.noise_multiplier,
            rounds=self.steps,
            sampling=FULL if self.sample_rate == 1 else sampling,
            rate=self.sample_rate,
            adjacency=self.adjacency,
            delta=self.delta,
        )
        reason = found.reason
        if self.accountant == "gdp":
            reason += f" {_LIMIT_THEOREM}"
        notes = [_SIZE]
        if not self.secure_mode:
            notes.append(
                "without secure_mode noise is of PyTorch's own generator, which is no "
                "cryptographic one, and its floating point can betray what it hides"
            )
        if not self.poisson_sampling:
            notes.append(
                "what is proved of shuffled batches takes the order to follow from no record, and "
                "under add-remove that the other records keep their batches"
            )
        return self.verdict(
            found.epsilon,
            unit="one record",
            method=found.method,
            reason=reason,
            notes=tuple(notes),
            at_least=found.at_least,
        )
