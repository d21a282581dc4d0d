"""The command line, in this process."""

from tests.simulations.conftest import fedpriv

__all__ = ["fedpriv"]
