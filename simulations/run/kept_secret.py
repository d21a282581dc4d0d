"""Kept secret of a release that must have one draw: stored before it is asked, gone at its end.

A paid tuning draws its number of trials, and the fit of a perturbed objective draws a term that
affects how many exchanges it takes. If they drew again whenever they were resumed, anyone who
interrupts long runs (a time limit, for one) would select among draws: of logistic regressions that
were stopped after nine exchanges and restarted until one finished by then, 17 % had a model that a
neighbouring table could not have had. So all randomness of such a release is derived from one
secret of the operating system, stored in the owner's folder before the run is charged for anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedpriv._durable import OWNER_ONLY, replace_file, synchronise
from fedpriv.privacy.randomness import SECRET_BYTES, RandomStream
from fedpriv.simulations.run.files import private

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from fedpriv.simulations.run.prepare import Prepared

_FILE = "draw.secret"


def drawn_once(prepared: Prepared) -> bool:
    """Whether a release of this experiment must draw only once, however often it is resumed."""
    return prepared.experiment.paid_tuning or prepared.info.one_draw


def keep_secret(directory: Path) -> None:
    """Draw the secret of a run; on return it is on disk."""
    secret = RandomStream.from_os().bytes(SECRET_BYTES)
    replace_file(private(directory) / _FILE, secret, mode=OWNER_ONLY)


def secret_streams(directory: Path, purpose: str) -> Callable[[int], RandomStream]:
    """The numbered streams of the run in a directory, the same whenever they are opened.

    Raises:
        RuntimeError: When a stream is opened and the secret no longer exists.
    """

    def stream(number: int) -> RandomStream:
        try:
            secret = (private(directory) / _FILE).read_bytes()
        except OSError:
            raise RuntimeError(
                f"the secret that the draws of the run in {str(directory)!r} follow from is not "
                "there: to draw anew for the same payment would be to choose among draws. What was "
                "reserved stays spent. Put the file back, or start a new run."
            ) from None
        return RandomStream.from_secret(secret, purpose, number)

    return stream


def forget_secret(directory: Path) -> None:
    """Remove the secret of a run after its release, when nothing more is drawn.

    On return the removal is on disk, so a result written next never coexists with the secret, even
    after a power failure.
    """
    path = private(directory) / _FILE
    if path.exists():
        path.unlink()
        synchronise(path.parent)
