"""The table of kinds: a number for everything that is packed, and none for two."""

from __future__ import annotations

from fedpriv.federation.deployed import journal
from fedpriv.federation.party import answered
from fedpriv.federation.protocol import errands, instruction, wire
from fedpriv.secagg import messages, party_state
from fedpriv.secagg.primitives.codec import Packed
from fedpriv.secagg.primitives.kinds import Kind


def test_every_packed_value_has_a_number_of_the_table_and_its_own() -> None:
    modules = (messages, party_state, wire, errands, instruction, answered, journal)
    packed = {
        value
        for module in modules
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Packed) and hasattr(value, "kind")
    }
    assert sorted(value.kind for value in packed) == sorted(Kind)
    names = {value.kind: value.__name__ for value in packed}
    for kind in Kind:
        assert names[kind] == kind.name.title().replace("_", "")


def test_nothing_is_packed_anywhere_else() -> None:
    """Whoever adds a class of messages adds it to the modules above, and to the table."""
    pending, known = (
        [Packed],
        {journal, answered, wire, errands, instruction, messages, party_state},
    )
    while pending:
        value = pending.pop()
        pending.extend(value.__subclasses__())
        if value.__module__.startswith("fedpriv.") and hasattr(value, "kind"):
            assert value.__module__ in {module.__name__ for module in known}


def test_numbers_that_were_used_keep_their_meaning() -> None:
    """Another number for a message would be another version of the protocol."""
    assert [kind.value for kind in Kind] == [
        *range(1, 10), *range(32, 37), 38, *range(48, 54), *range(64, 70), *range(96, 99)
    ]  # fmt: skip
