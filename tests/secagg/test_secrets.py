"""Keys, seeds and shares show up in no repr and no error; the package is what it says it is."""

import ast
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import fedpriv.secagg
from fedpriv.secagg import Mode
from fedpriv.secagg.errors import SecureAggregationError
from tests.secagg.cohort import Cohort, Dice, Play, random_answers, small

SOURCE = Path(fedpriv.secagg.__file__).parent


def secrets_of(game: Play) -> list[bytes]:
    """Every secret there is in a game: drawn by a party, or in its state."""
    secrets = []
    for i, party in game.parties.items():
        secrets += [Dice("advertise", 1, i)(32), Dice("share", 1, i)(32)]
        secrets += [party.identity.private_bytes_raw(), party.channel_key.private_bytes_raw()]
        state = game.states.get(i)
        secrets += [row for name in ("links", "held") for row in getattr(state, name, {}).values()]
    return secrets


def shown(secret: bytes, text: str) -> bool:
    forms = (secret.hex(), repr(secret)[2:-1], str(list(secret))[1:-1])
    return any(form[:24] in text for form in forms)


@pytest.mark.parametrize("step", ["share", "answer", "survivors", "reveal"])
def test_no_repr_shows_a_secret(step: str) -> None:
    game = Play(Cohort(small("active")), random_answers(range(5), 3, 32)).until(step)
    secrets = secrets_of(game)
    values: list[Any] = [
        *game.states.values(),
        *game.parties.values(),
        *game.seen,
        game.server_state,
    ]
    if step == "reveal":
        sent: list[Any] = game.reveal()
        secrets += [share for message in sent for share in message.seed_shares.values()]
        total = game.finish(sent)
        values += [*sent, total]
        assert str(total.vector[0]) not in repr(total)
    for value in values:
        text = f"{value!r} {value}"
        assert not any(shown(secret, text) for secret in secrets)


def test_the_check_for_shown_secrets_has_teeth() -> None:
    secret = Dice("s")(32)
    assert shown(secret, f"key={secret!r}")
    assert shown(secret, secret.hex())


def test_no_error_shows_a_secret() -> None:
    game = Play(Cohort(small("active")), random_answers(range(5), 3, 32)).until("share")
    party, state, box = game.parties[1], game.states[1], game.outboxes[1]
    attempts: list[Any] = [
        lambda: party.share(state, replace(box, round=2), Dice(0)),
        lambda: party.share(state, replace(box, keys={2: box.keys[3]}), Dice(0)),
        lambda: party.share(state, replace(box, keys={}), Dice(0)),
        lambda: party.answer(state, box, game.answers[1]),
        lambda: party.reveal(state, box),
    ]
    for attempt in attempts:
        with pytest.raises(SecureAggregationError) as caught:
            attempt()
        chain = [caught.value, caught.value.__cause__]
        assert not any(shown(secret, repr(error)) for secret in secrets_of(game) for error in chain)


def test_the_protocol_imports_no_torch_no_flower_and_nothing_else_of_fedpriv() -> None:
    code = "import sys, fedpriv.secagg; print(*sorted(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    loaded = done.stdout.split()
    assert not {"torch", "flwr", "ray", "scipy.stats"} & set(loaded)
    ours = [name for name in loaded if name.startswith("fedpriv.")]
    assert all(name.startswith(("fedpriv.secagg", "fedpriv._")) for name in ours)


def test_no_module_draws_randomness_by_itself() -> None:
    """Secrets come from the ``entropy`` that is passed in: nothing calls the system's generator."""
    for module in SOURCE.glob("*.py"):
        tree = ast.parse(module.read_text())
        names = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        imported = {
            alias.name
            for node in ast.walk(tree)
            if isinstance(node, ast.Import | ast.ImportFrom)
            for alias in node.names
        }
        assert not {"urandom", "token_bytes", "generate"} & names
        assert not {"os", "random", "secrets", "time"} & imported


def test_the_public_names_are_pinned() -> None:
    assert sorted(fedpriv.secagg.__all__) == [
        "Enrolled",
        "FixedPoint",
        "Mode",
        "Parameters",
        "Party",
        "Round",
        "SecureAggregationError",
        "Server",
        "Total",
    ]
    assert [mode.value for mode in Mode] == ["semi-honest", "active"]
