"""Counts in words, as sentences have them: one party, 131 parties."""

from __future__ import annotations


def parties_in_words(count: int) -> str:
    """How many parties there are.

    >>> parties_in_words(1), parties_in_words(131)
    ('1 party', '131 parties')
    """
    return f"{count} party" if count == 1 else f"{count} parties"
