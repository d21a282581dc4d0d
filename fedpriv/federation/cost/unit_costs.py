"""Unit costs: processor seconds of each operation, measured here or on the recorded machine."""

from __future__ import annotations

import os
from hashlib import sha256
from time import process_time
from typing import TYPE_CHECKING, Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from fedpriv.federation.cost.work import OPERATIONS, Work
from fedpriv.privacy.randomness import RandomStream
from fedpriv.privacy.samplers import DiscreteGaussian
from fedpriv.secagg import Mode, Parameters, Party, Round
from fedpriv.secagg.messages import BOTH_SHARES_BYTES, SIGNED_KEYS_BYTES, KeyList, Survivors
from fedpriv.secagg.party_state import Advertised
from fedpriv.secagg.primitives import shamir
from fedpriv.secagg.primitives.keys import (
    KEY_BYTES,
    SALT_BYTES,
    agree,
    derive,
    public_key,
    require_signature,
    seal,
    unseal,
)
from fedpriv.secagg.primitives.masks import apply_masks
from fedpriv.secagg.round import RUN_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

RECORDED = "18 November 2026, one core of an AMD EPYC virtual machine"
"""Where and when the recorded costs were measured."""

RECORDED_COSTS = Work(
    agree=2.6e-05,
    sign=2e-05,
    verify=6.4e-05,
    derive=2.3e-06,
    seal=1.15e-06,
    mask=4e-06,
    mask_byte=1.4e-10,
    deal=2.3e-08,
    solve=9.8e-09,
    part=6e-09,
    row=1.6e-07,
    number=2.2e-08,
    copy=1.9e-11,
    hash=4.9e-10,
    member=4.2e-08,
    message=0.00016,
    draw=6.4e-09,
)

_SECONDS = 0.12  # of processor time for each operation
_LEAST_CALLS = 3
_HOLDERS, _THRESHOLD, _ROWS, _OWNERS = 100, 51, 200, 20
_NUMBERS, _VECTOR, _LONG = 1000, 1 << 16, 1 << 20
_COHORT, _REPLIES = 10, 3


def calibrated() -> Work:
    """The unit costs of this machine, measured now, in two seconds or so of one core."""
    measured: dict[str, float] = {}
    for name, (count, call) in _operations().items():
        measured[name] = _best(call) / count
    return Work(**{name: measured[name] for name in OPERATIONS})


def _best(call: Callable[[], object]) -> float:
    """The least processor time of several calls: other work disturbs it least."""
    times: list[float] = []
    end = process_time() + _SECONDS
    while len(times) < _LEAST_CALLS or process_time() < end:
        start = process_time()
        call()
        times.append(process_time() - start)
    return min(times)


def _operations() -> dict[str, tuple[float, Callable[[], object]]]:
    """For every operation a call, and how many of them it does."""
    secret, info = bytes(range(KEY_BYTES)), bytes(100)
    private = X25519PrivateKey.from_private_bytes(secret)
    public = public_key(bytes([1]) * KEY_BYTES)
    signer = Ed25519PrivateKey.from_private_bytes(secret)
    identity, signature = signer.public_key().public_bytes_raw(), signer.sign(info)
    sealed = seal(secret, bytes(BOTH_SHARES_BYTES), info)
    short, long = np.zeros(1, np.uint32), np.zeros(_LONG // 4, np.uint32)
    points = shamir.points(range(_HOLDERS))
    limbs = shamir.limbs(bytes(2 * KEY_BYTES))
    chosen = np.tile(points[:_THRESHOLD], (_OWNERS, 1))
    weights = shamir.weights(points[np.newaxis, :_THRESHOLD])
    values = np.zeros((_OWNERS, _THRESHOLD, shamir.LIMBS), np.int64)
    weight_rows = np.repeat(weights, _OWNERS, axis=0)
    keys = KeyList(
        run=bytes(RUN_BYTES),
        round=1,
        party=0,
        keys={i: bytes(SIGNED_KEYS_BYTES) for i in range(_ROWS)},
    )
    listed = Survivors(run=bytes(RUN_BYTES), round=1, party=0, survivors=tuple(range(_NUMBERS)))
    sampler = DiscreteGaussian(stddev=1000.0)
    stream = RandomStream.seeded(0, "calibration")
    roster = tuple(i.to_bytes(KEY_BYTES, "big") for i in range(_NUMBERS))

    def many(call: Callable[[], object], count: int = 20) -> Callable[[], object]:
        def calls() -> None:
            for _ in range(count):
                call()

        return calls

    def sealing() -> None:
        seal(secret, bytes(BOTH_SHARES_BYTES), info)
        unseal(secret, sealed, info)

    def member() -> None:
        any(len(key) != KEY_BYTES for key in roster)
        len(set(roster))
        sha256(b"".join(roster)).digest()

    return {
        "agree": (20, many(lambda: agree(private, public))),
        "sign": (20, many(lambda: signer.sign(info))),
        "verify": (20, many(lambda: require_signature(identity, signature, info, signer=0))),
        "derive": (20, many(lambda: derive(secret, info, bytes(SALT_BYTES)))),
        "seal": (40, many(sealing)),
        "mask": (20, lambda: apply_masks(short, add=[secret] * 20)),
        "mask_byte": (8 * _LONG, lambda: apply_masks(long, add=[secret] * 8)),
        "deal": (
            _HOLDERS * _THRESHOLD,
            lambda: shamir.pack(shamir.split(limbs, points, _THRESHOLD, os.urandom)[:, :16]),
        ),
        "solve": (_OWNERS * _THRESHOLD**2, lambda: shamir.weights(chosen)),
        "part": (_OWNERS * _THRESHOLD, lambda: shamir.combine(weight_rows, values)),
        "row": (2 * _ROWS, lambda: KeyList.from_bytes(keys.to_bytes())),
        "number": (2 * _NUMBERS, lambda: Survivors.from_bytes(listed.to_bytes())),
        "copy": (8 * _LONG, np.zeros(8 * _LONG, np.uint8).tobytes),
        "hash": (_LONG, lambda: sha256(long.data).digest()),
        "member": (_NUMBERS, member),
        "message": (20, many(_handled(private, signer))),
        "draw": (_VECTOR, lambda: sampler.draw(_VECTOR, stream)),
    }


def _handled(channel: X25519PrivateKey, identity: Ed25519PrivateKey) -> Callable[[], object]:
    """What is done around a step of a party: in Flower's message, with its memory and its keys."""
    from flwr.app import ConfigRecord, RecordDict

    from fedpriv.federation.engines.courier import envelope
    from fedpriv.federation.party.memory import Memory
    from fedpriv.federation.protocol.wire import Announce, Reply, Request

    here: dict[str, Any] = {"run": bytes(RUN_BYTES), "round": 1, "party": 0}
    parameters = Parameters.plan(mode=Mode.SEMI_HONEST, parties=_COHORT)
    cohort = tuple(range(_COHORT))
    roster = (identity.public_key().public_bytes_raw(), *(bytes([i]) * 32 for i in cohort[1:]))
    announce = Announce(**here, cohort=cohort, minimum=parameters.minimum)
    state = Advertised(**here, mask_key=bytes(KEY_BYTES), holders=cohort)
    memory = Memory(run=here["run"]).moved(announce, state)
    for i in range(_REPLIES):
        memory = memory.replied(bytes([i]) * 32, bytes(1000))
    request, reply = Request(messages=(announce,)), Reply(messages=(announce,))

    def handle() -> None:
        envelope(request.to_bytes())
        Request.from_bytes(request.to_bytes())
        known = Memory.from_bytes(memory.to_bytes())
        announced = Round(
            run=here["run"], number=1, cohort=cohort, roster=roster, parameters=parameters
        )
        Party(
            number=0,
            announced=announced,
            identity=identity,
            channel_key=X25519PrivateKey.from_private_bytes(channel.private_bytes_raw()),
        )
        moved = known.moved(announce, state)
        RecordDict({"memory": ConfigRecord({"memory": moved.to_bytes()})})
        envelope(reply.to_bytes())
        Reply.from_bytes(reply.to_bytes())

    return handle
