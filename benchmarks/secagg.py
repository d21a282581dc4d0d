"""Secure aggregation: masks against ``openssl speed``, a round against Flower's SecAgg+, a table.

Run with ``python -m benchmarks.secagg [--json] [--no-peer]``. Flower's part takes some minutes: its
server alone needs them for one round of 100 parties. Everything runs in this process and is
measured in processor time, which other work on the machine disturbs least.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from math import ceil
from time import process_time
from typing import TYPE_CHECKING, Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from benchmarks.peers.flower_secagg import FULL_CLIENTS, Clock, flower_round
from fedpriv.secagg import Enrolled, Mode, Parameters, Party, Round, Server
from fedpriv.secagg.primitives.masks import apply_masks

if TYPE_CHECKING:
    from collections.abc import Callable

FILL_GOAL, FUSED_GOAL = 0.90, 0.65
CLIENT_GOAL, SERVER_GOAL = 15.0, 100.0
SETUP_GOAL = 10_000
PEER_CASE = {"parties": 100, "threshold": 51, "dimension": 1_000_000}
COHORTS = (10, 100, 1000)
DIMENSIONS = (10**3, 10**4, 10**5, 10**6, 10**7)
DROPPED = 0.05
BLOCK = 1 << 17
MASK_BUDGET = 60e9  # bytes of keystream a cell may take; beyond, d is cut and times scaled up


def best_cpu(call: Callable[[], object], repeats: int = 7) -> float:
    """The least processor time of several runs, in seconds."""
    times = []
    for _ in range(repeats):
        start = process_time()
        call()
        times.append(process_time() - start)
    return min(times)


def openssl_speed() -> float:
    """AES-256-CTR by OpenSSL's own benchmark, bytes a second of processor time."""
    command = ["openssl", "speed", "-seconds", "2", "-bytes", str(BLOCK), "-evp", "aes-256-ctr"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found = re.search(r"AES-256-CTR\s+([\d.]+)k", done.stdout)
    if found is None:
        raise RuntimeError("openssl speed printed no result for AES-256-CTR.")
    return 1e3 * float(found[1])


def masks() -> dict[str, float]:
    """Keystream alone, and keystream added to a vector of a million, as shares of OpenSSL's speed.

    The three are measured in turn, several times, and each one's best counts.
    """
    cipher = Cipher(algorithms.AES(os.urandom(32)), modes.CTR(bytes(16))).encryptor()
    zeros, sink = bytes(BLOCK), np.empty(BLOCK, dtype=np.uint8)
    vector, keys = np.zeros(10**6, dtype=np.uint32), [os.urandom(32) for _ in range(20)]

    def fill() -> None:
        for _ in range(500):
            cipher.update_into(zeros, sink.data)

    best = {"openssl": 0.0, "fill": 0.0, "fused": 0.0}
    for _ in range(5):
        best["openssl"] = max(best["openssl"], openssl_speed())
        best["fill"] = max(best["fill"], 500 * BLOCK / best_cpu(fill))
        seconds = best_cpu(lambda: apply_masks(vector, add=keys))
        best["fused"] = max(best["fused"], len(keys) * vector.nbytes / seconds)
    return best


def one_round(
    parameters: Parameters, dimension: int, *, drops: dict[int, float], masking: int | None = None
) -> dict[str, Any]:
    """One round in this process; ``drops[s]`` is the share of parties silent from step s on.

    If ``masking`` is None all parties mask at full length, and the sum is checked. Otherwise only
    so many do, and the server gets their last vector from the others, too: its work is the same.
    """
    n, random, clock = parameters.parties, np.random.default_rng(0), Clock()
    identities = [Ed25519PrivateKey.generate() for _ in range(n)]
    announced = Round(
        run=os.urandom(32),
        number=1,
        cohort=tuple(range(n)),
        roster=tuple(key.public_key().public_bytes_raw() for key in identities),
        parameters=parameters,
    )
    parties = [
        Party(number=i, announced=announced, identity=key, channel_key=X25519PrivateKey.generate())
        for i, key in enumerate(identities)
    ]
    server, order = Server(announced=announced), random.permutation(n).tolist()
    answer = random.integers(0, 2**32, size=dimension, dtype=np.uint32)
    states: dict[int, Any] = {i: Enrolled(run=announced.run, round=0, party=i) for i in range(n)}
    size: dict[str, int] = {}

    def present(step: int, boxes: Any) -> list[int]:
        gone = ceil(sum(share for s, share in drops.items() if s <= step) * n - 1e-9)
        return sorted(set(boxes) - set(order[:gone]))

    def send(name: str, i: int, *arguments: Any) -> Any:
        states[i], message = clock.time(name, getattr(parties[i], name), states[i], *arguments)
        size[name] = size.get(name) or len(message.to_bytes())
        return message

    sent = [send("advertise", i, os.urandom) for i in present(0, range(n))]
    state, boxes = clock.time("server", server.collect_keys, sent)
    sent = [send("share", i, boxes[i], os.urandom) for i in present(1, boxes)]
    state, boxes = clock.time("server", server.collect_shares, state, sent)
    survivors, sent = present(2, boxes), []
    for position, i in enumerate(survivors):
        if masking is None or position < masking:
            sent.append(send("answer", i, boxes[i], answer + np.uint32(i)))
        else:
            states[i], message = parties[i].answer(states[i], boxes[i], answer[:1])
            sent.append(replace(message, vector=sent[0].vector))
    state, boxes = clock.time(
        "server", server.collect_answers, state, sent, dimension=dimension, bits=32
    )
    if parameters.mode is Mode.ACTIVE:
        sent = [send("confirm", i, boxes[i]) for i in present(3, boxes)]
        state, boxes = clock.time("server", server.collect_consent, state, sent)
    sent = [send("reveal", i, boxes[i]) for i in present(4, boxes)]
    total = clock.time("server", server.finish, state, sent)
    if masking is None:
        expected = len(survivors) * answer + np.uint32(sum(survivors))
        if not (total.vector == expected).all():
            raise RuntimeError("The masked sum is not the ideal sum.")
    return {
        "client": clock.a_client(),
        "server": sum(clock.seconds["server"]),
        "setup_bytes": size["advertise"] + size["share"],
        "answer_bytes": size["answer"],
        "reveal_bytes": size["reveal"] + size.get("confirm", 0),
        "in_the_sum": len(total.parties),
    }


def table() -> list[dict[str, Any]]:
    """The cost of a round by cohort and dimension, active mode, 5 % gone after sharing."""
    rows: list[dict[str, Any]] = []
    for parties in COHORTS:
        parameters = Parameters.plan(mode=Mode.ACTIVE, parties=parties)
        fixed: dict[str, Any] = {}
        for dimension in DIMENSIONS:
            partners = min(parties, 2 * parameters.holders)
            keystream = 4.0 * dimension * parties * (1 + DROPPED * partners)  # at the server
            cut = next(c for c in (1, 10, 100) if keystream / c <= MASK_BUDGET)
            cost = one_round(
                parameters, dimension // cut, drops={2: DROPPED}, masking=min(parties, FULL_CLIENTS)
            )
            fixed = fixed or cost  # at the smallest dimension: what does not grow with it
            for side in ("client", "server"):
                cost[side] = fixed[side] + (cost[side] - fixed[side]) * cut
            cost["answer_bytes"] += 4 * (dimension - dimension // cut)
            rows.append(
                {
                    "parties": parties,
                    "dimension": dimension,
                    "holders": parameters.holders,
                    "threshold": parameters.threshold,
                    "measured_at": dimension // cut,
                    **cost,
                }
            )
    return rows


def run(*, peer: bool) -> dict[str, Any]:
    """All results, as JSON-ready values."""
    case = Parameters.plan(mode=Mode.SEMI_HONEST, parties=100, minimum=51)
    result: dict[str, Any] = {"masks": masks()}
    result["ours"] = one_round(case, PEER_CASE["dimension"], drops={2: DROPPED})
    if peer:
        result["flower"] = flower_round(**PEER_CASE, dropped=DROPPED)
    many = Parameters.plan(mode=Mode.SEMI_HONEST, parties=1000, dropout=5 * DROPPED)
    result["drops_at_every_step"] = one_round(many, 100_000, drops=dict.fromkeys(range(5), DROPPED))
    result["table"] = table()
    return result


def missed(result: dict[str, Any]) -> list[str]:
    """The goals that were not met."""
    speed, ours, flower = result["masks"], result["ours"], result.get("flower")
    per_coordinate = ours["answer_bytes"] / PEER_CASE["dimension"]
    goals = {
        "mask fill": speed["fill"] >= FILL_GOAL * speed["openssl"],
        "fused mask": speed["fused"] >= FUSED_GOAL * speed["openssl"],
        "set-up bytes": ours["setup_bytes"] < SETUP_GOAL,
        "bytes a coordinate": per_coordinate < 4.001,
        "client": not flower or flower["client"] >= CLIENT_GOAL * ours["client"],
        "server": not flower or flower["server"] >= SERVER_GOAL * ours["server"],
    }
    return [name for name, met in goals.items() if not met]


def show(result: dict[str, Any]) -> None:
    """Print everything for people."""
    speed = result["masks"]
    print(f"openssl aes-256-ctr {speed['openssl'] / 1e9:.2f} GB/s of processor time")
    for name, goal in (("fill", FILL_GOAL), ("fused", FUSED_GOAL)):
        share = speed[name] / speed["openssl"]
        print(f"mask {name:<6} {speed[name] / 1e9:.2f} GB/s, {share:.0%} (goal {goal:.0%})")
    print("\n100 parties, threshold 51, a million coordinates, 5 % dropping out")
    print(
        f"{'':<8}{'client s':>10}{'server s':>10}{'set-up B':>10}{'answer B':>11}{'reveal B':>10}"
    )
    for name in ("ours", "flower"):
        if cost := result.get(name):
            print(
                f"{name:<8}{cost['client']:>10.3f}{cost['server']:>10.2f}{cost['setup_bytes']:>10}"
                f"{cost['answer_bytes']:>11}{cost['reveal_bytes']:>10}"
            )
    if peer := result.get("flower"):
        client = peer["client"] / result["ours"]["client"]
        server = peer["server"] / result["ours"]["server"]
        print(f"faster  {client:>9.0f}x{server:>9.0f}x (goals {CLIENT_GOAL:g}x, {SERVER_GOAL:g}x)")
    cost = result["drops_at_every_step"]
    print(
        f"\n1000 parties, 100000 coordinates, 5 % dropping out at each of five steps: exact sum of "
        f"{cost['in_the_sum']}; client {cost['client']:.2f} s, server {cost['server']:.1f} s"
    )
    print("\nactive mode, 5 % dropping out after sharing (~: measured at a smaller d, scaled up)")
    print(f"{'n':>5}{'d':>10}{'k':>5}{'t':>4}{'client ms':>12}{'server ms':>12}{'set-up B':>10}")
    for row in result["table"]:
        mark = "~" if row["measured_at"] != row["dimension"] else " "
        print(
            f"{row['parties']:>5}{row['dimension']:>10}{row['holders']:>5}{row['threshold']:>4}"
            f"{mark:>2}{1e3 * row['client']:>10.1f}{mark:>2}{1e3 * row['server']:>10.0f}"
            f"{row['setup_bytes']:>10}"
        )


def main() -> None:
    """Print the results, or JSON with ``--json``; exit 1 if a goal is missed."""
    result = run(peer="--no-peer" not in sys.argv[1:])
    if "--json" in sys.argv[1:]:
        print(json.dumps(result, indent=2))
    else:
        show(result)
    if names := missed(result):
        sys.exit(f"goals missed by {', '.join(names)}")


if __name__ == "__main__":
    main()
