"""Reading a claim: a small table with a kind and its parameters, each checked by name."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import TYPE_CHECKING, Any

from fedpriv.audit.claims.flower import FlowerAdaptive, FlowerFixed, FlowerLocal
from fedpriv.audit.claims.gaussian import GaussianClaim
from fedpriv.audit.claims.laplace import LaplaceClaim, RoundsClaim
from fedpriv.audit.claims.nvflare import NvflarePercentile, NvflareStatistics, NvflareSvt
from fedpriv.audit.claims.opacus import OpacusClaim
from fedpriv.audit.claims.pfl import PflClaim

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fedpriv.audit.claims.verdict import Claim

KINDS: dict[str, type[Claim]] = {
    each.kind: each
    for each in (
        GaussianClaim,
        LaplaceClaim,
        RoundsClaim,
        FlowerFixed,
        FlowerAdaptive,
        FlowerLocal,
        OpacusClaim,
        PflClaim,
        NvflarePercentile,
        NvflareSvt,
        NvflareStatistics,
    )
}
"""Every kind of claim, by its name in a file."""

_WORDS = {"float": "a number", "int": "a whole number", "str": "text", "bool": "true or false"}


def claim_from_dict(values: Mapping[str, Any]) -> Claim:
    """The claim that a table states.

    Raises:
        ValueError: The kind or a key is unknown, one is missing, or a value is not possible.
    """
    given = dict(values)
    kind = given.pop("kind", None)
    if not isinstance(kind, str) or kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(map(repr, KINDS))}; got {kind!r}.")
    wanted = {field.name: field for field in fields(KINDS[kind])}
    if unknown := sorted(given.keys() - wanted.keys()):
        raise ValueError(
            f"{unknown[0]} is no key of a claim of kind {kind!r}. Known are {', '.join(wanted)}."
        )
    for name, field in wanted.items():
        if name in given:
            given[name] = _checked(name, given[name], str(field.type))
        elif field.default is MISSING:
            raise ValueError(f"{name} is missing: a claim of kind {kind!r} must state it.")
    return KINDS[kind](**given)


def _checked(name: str, value: Any, type_: str) -> Any:
    """A value of the type that its field has."""
    plain = type_.removesuffix(" | None")
    fits = {
        "float": isinstance(value, int | float) and not isinstance(value, bool),
        "int": isinstance(value, int) and not isinstance(value, bool),
        "str": isinstance(value, str),
        "bool": isinstance(value, bool),
    }[plain]
    if not fits:
        raise ValueError(f"{name} must be {_WORDS[plain]}, got {value!r}.")
    return float(value) if plain == "float" else value
