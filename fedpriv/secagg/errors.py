"""Errors of secure aggregation: they name rules and parties, never keys, shares or sums."""

from __future__ import annotations


class SecureAggregationError(Exception):
    """A step of the protocol was refused; the state that it was given is still valid."""


class MalformedMessage(SecureAggregationError):
    """Bytes that are not a message of this version, or a field outside its range."""


class WrongRound(SecureAggregationError):
    """A message of another run, another round, or for another party; or a round joined before."""


class OutOfOrder(SecureAggregationError):
    """A message that does not belong to the step that its receiver has reached."""


class BadSignature(SecureAggregationError):
    """A signature that does not verify under the identity key pinned for its signer."""


class BadKey(SecureAggregationError):
    """A public key that is used twice, or of low order, so that the agreed secret is no secret."""


class BadList(SecureAggregationError):
    """The server's list of parties breaks a rule: a stranger in it, or the receiver missing."""


class TooFewParties(SecureAggregationError):
    """Fewer parties than the threshold or the minimum remain: nothing is revealed."""


class WronglyShared(TooFewParties):
    """Enough holders sent what they have of a party's secret, and it does not open.

    Attributes:
        party: Who shared it.
        certain: Whether it is at fault, as it is if so many holders were heard that without the
            colluding ones there are enough. Else a few of them may have kept its shares back.
    """

    def __init__(self, words: str, *, party: int, certain: bool) -> None:
        super().__init__(words)
        self.party = party
        self.certain = certain
