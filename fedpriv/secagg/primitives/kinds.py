"""Kinds of packed values: the one table of the numbers that their second byte may be.

Messages travel between server and party, states and answers stay on the party's disk. A number is
never reused for another kind; `unique` refuses duplicates.
"""

from enum import IntEnum, unique


@unique
class Kind(IntEnum):
    """What a packed value is."""

    # Messages of the protocol.
    ADVERTISE = 1
    KEY_LIST = 2
    SHARE = 3
    DELIVERY = 4
    MASKED_ANSWER = 5
    SURVIVORS = 6
    CONFIRM = 7
    CONFIRMATIONS = 8
    REVEAL = 9
    # Messages outside the protocol. 37 was used in the past.
    JOIN = 32
    JOINED = 33
    ANNOUNCE = 34
    ASK = 35
    CLEAR_ANSWER = 36
    INSTRUCTION = 38
    # Errands after a run, or to cancel it.
    ATTEST = 48
    ATTESTED = 49
    HAND_OVER = 50
    HANDED_OVER = 51
    CANCEL = 52
    CANCELLED = 53
    # States of a party.
    ENROLLED = 64
    ADVERTISED = 65
    SHARED = 66
    ANSWERED = 67
    CONFIRMED = 68
    REVEALED = 69
    # A party's records of a run.
    GIVEN = 96
    LEDGER_MARK = 97
    HEARD = 98
