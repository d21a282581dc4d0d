"""Errors of secure aggregation: they name rules and parties, never keys, shares or sums."""

from __future__ import annotations


class SecureAggregationError(Exception):
    """A step of the protocol was refused; its input state is still valid."""


class MalformedMessage(SecureAggregationError):
    """Bytes that are not a message of this version, or a field outside its range."""


class WrongRound(SecureAggregationError):
    """A message of another run or round, or for another party; or a round joined before."""


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
    """Enough holders revealed their shares of a party's secret, but the secret does not open.

    Attributes:
        party: The party that shared the secret.
        certain: Whether that party is at fault: so many holders replied that enough remain without
            the colluding ones. Otherwise a few holders may have withheld its shares.
    """

    def __init__(self, words: str, *, party: int, certain: bool) -> None:
        super().__init__(words)
        self.party = party
        self.certain = certain
