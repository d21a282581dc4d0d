"""Names of the noise distributions for a vector with a known L2 sensitivity."""

from typing import Literal

Law = Literal["gaussian", "l2-laplace", "l1-laplace", "unsound-laplace"]
PureLaw = Literal["l2-laplace", "l1-laplace"]
LAWS: tuple[Law, ...] = ("gaussian", "l2-laplace", "l1-laplace", "unsound-laplace")
