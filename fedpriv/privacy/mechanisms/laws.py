"""Names of the noise laws that can be put on a vector whose L2 sensitivity is known."""

from typing import Literal

Law = Literal["gaussian", "l2-laplace", "l1-laplace", "unsound-laplace"]
PureLaw = Literal["l2-laplace", "l1-laplace"]
LAWS: tuple[Law, ...] = ("gaussian", "l2-laplace", "l1-laplace", "unsound-laplace")
