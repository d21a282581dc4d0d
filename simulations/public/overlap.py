"""Overlap of data sets: a public one may share no record with the private one."""

from __future__ import annotations

import re

_PAIR = re.compile("([0-9])v([0-9])")


def shares_records(public: str, private: str | None) -> bool:
    """Whether two built-in data sets may have a record in common.

    Those of different names have none; nor have two pairs of digits without a common digit.

    >>> shares_records("mnist:4v6", "mnist:3v5"), shares_records("mnist", "mnist:3v5")
    (False, True)
    """
    (one, _, first), (other, _, second) = public.partition(":"), (private or "").partition(":")
    if one != other:
        return False
    pairs = [_PAIR.fullmatch(variant) for variant in (first, second)]
    digits = [set(pair.groups()) for pair in pairs if pair]
    return len(digits) < len(pairs) or bool(digits[0] & digits[1])
