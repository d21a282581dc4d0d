"""The guide to the ledger does what it says."""

import json
import re
import struct
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

GUIDE = Path(__file__).parents[3] / "docs" / "ledger.md"


@pytest.fixture
def names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    (example,) = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    found: dict[str, Any] = {}
    exec(example, found)  # noqa: S102 (our own guide)
    return found


def test_the_example_of_the_guide_runs(names: dict[str, Any]) -> None:
    assert names["reservation"].release == b"... the noisy sum ..."


def encoded(value: Any) -> bytes:
    match value:
        case None:
            tag, payload = b"n", b""
        case int():
            tag, payload = b"i", str(value).encode()
        case float():
            tag, payload = b"f", struct.pack(">d", value)
        case str():
            tag, payload = b"s", value.encode()
        case _:
            tag, payload = b"b", bytes(value)
    return tag + struct.pack(">Q", len(payload)) + payload


def test_an_auditor_can_check_an_export_from_the_guide_alone(names: dict[str, Any]) -> None:
    """Written from the guide, without the code that it checks."""
    with names["Ledger"].open("clinic.ledger", read_only=True) as ledger:
        exported = json.loads(json.dumps(ledger.export()))

    previous = "00" * 32
    for row in exported["rows"]:
        columns = {name: value for name, value in row.items() if name != "hash"}
        columns["run"] = row["run"] or ""
        columns["round"] = -1 if row["round"] is None else row["round"]
        columns["detail"] = json.dumps(row["detail"], sort_keys=True, separators=(",", ":"))
        assert row["prev_hash"] == previous
        columns["prev_hash"] = bytes.fromhex(previous)
        if row["release_hash"] is not None:
            columns["release_hash"] = bytes.fromhex(row["release_hash"])
        text = b"fedpriv ledger row 1\0" + b"".join(map(encoded, columns.values()))
        assert sha256(text).hexdigest() == row["hash"]
        previous = row["hash"]
    assert previous == exported["head"]
    assert len(exported["rows"]) == 4
