"""Everything that reads what others wrote, what it may raise, and what it reads without a word."""

from __future__ import annotations

import io
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fedpriv._json import parse_json
from fedpriv._toml import parse_toml, read_toml, to_toml
from fedpriv.data.errors import DataError
from fedpriv.data.tables.schema import parse_schema, read_schema
from fedpriv.data.tables.table import read_table
from fedpriv.federation.deployed.paying import require_affordable
from fedpriv.federation.deployed.policy import read_party
from fedpriv.federation.deployed.stated_plan import StatedPlan
from fedpriv.federation.deployed.statements.verifying import verify
from fedpriv.federation.party.guard import Policy, QueryRefused, check_certain, check_query
from fedpriv.federation.protocol.wire import Announce, Join, Reply, Request
from fedpriv.federation.queries import encoding
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.budget import Budget, BudgetExceeded
from fedpriv.privacy.events import GaussianEvent
from fedpriv.privacy.ledger import Ledger, LedgerError
from fedpriv.privacy.statement import to_text
from fedpriv.privacy.statement.reading import read_values
from fedpriv.privacy.statement.signed import NotCanonical, read_signed
from fedpriv.secagg.errors import MalformedMessage
from fedpriv.simulations.deploy.backups.archive import Archive, read_archive, write_archive
from fedpriv.simulations.deploy.certificates import new_authority
from fedpriv.simulations.deploy.federation import parse_federation
from fedpriv.simulations.deploy.members.bundles import (
    Invitation,
    read_bundle,
    read_invitation,
    write_bundle,
)
from fedpriv.simulations.deploy.members.roster import Member, read_roster
from fedpriv.simulations.experiment.file import read_experiment
from fedpriv.simulations.experiment.model_section import ModelSection
from fedpriv.simulations.run.model_file import read_model
from tests.federation.deployed import policies as parties
from tests.federation.deployed import statement_scenes as scenes
from tests.federation.engines.grids import TASK, gradient_query
from tests.fuzz.reader import Reader, from_file
from tests.simulations.deploy.rosters import Chain, node_line

SIMULATIONS = Path(__file__).parents[2] / "simulations"
SCHEMA: dict[str, Any] = {
    "label": "y",
    "missing": "reject",
    "columns": {
        "y": {"kind": "category", "values": ["a", "b"]},
        "x": {"kind": "number", "min": 0, "max": 1, "fill": 0.5, "out_of_range": "clamp"},
        "c": {"kind": "category", "values": ["u", "v"], "fill": "u"},
    },
}
FEDERATION: dict[str, Any] = {
    "name": "clinics",
    "server": {"address": "127.0.0.1", "port": 9092},
    "party": [{"name": "north", "port": 9093}, {"name": "south"}, {"name": "west"}],
    "budget": {"epsilon": 20.0},
    "policy": {"min_noise": 0.01},
}
EVENT = GaussianEvent(relative_noise=30.0, adjacency=Adjacency.ADD_REMOVE)


def canonical(values: Any) -> bytes:
    return json.dumps(values, sort_keys=True, separators=(",", ":")).encode()


def _toml(values: Any) -> bytes:
    return to_toml(values).encode()


def _query(data: bytes, _: Path) -> None:
    query = encoding.from_bytes(data)
    check_query(query, TASK, Policy())
    check_certain(query, TASK)


def _query_bytes(values: Any) -> bytes:
    header, tail = canonical(values["header"]), bytes.fromhex(values["tail"])
    return encoding._PREFIX.pack(encoding._MAGIC, encoding.VERSION, len(header)) + header + tail


def _query_values(data: bytes) -> dict[str, Any]:
    start = encoding._PREFIX.size
    *_, length = encoding._PREFIX.unpack_from(data)
    header = json.loads(data[start : start + length])
    return {"header": header, "tail": data[start + length :].hex()}


def _request(data: bytes, _: Path) -> None:
    request = Request.from_bytes(data)
    assert request.to_bytes() == data
    assert request.run


def _statement(data: bytes, _: Path) -> None:
    verify(read_signed(data))


def _statement_bytes(values: Any) -> bytes:
    return canonical(values) + b"\n"


def _statements() -> tuple[bytes, ...]:
    plans = (scenes.gaussian_plan(), scenes.shares_plan(), scenes.adaptive_plan())
    return tuple(scenes.Scene.make(plan).signed().to_text().encode() for plan in plans)


def _plan(data: bytes, folder: Path) -> None:
    plan = StatedPlan.from_bytes(data)
    assert plan.event(0) is not None
    terms = {(event.adjacency, event.unit) for event, _ in plan.releases}
    with _new_ledger(folder / "plan.ledger", Adjacency.REPLACE_ONE) as ledger:
        if terms != {(ledger.settings.adjacency, ledger.settings.unit)}:
            raise QueryRefused("a party looks at these first")
        before = ledger.length
        try:
            require_affordable(plan, ledger)
        finally:
            assert ledger.length == before


def _new_ledger(path: Path, adjacency: Adjacency) -> Ledger:
    budget = Budget(epsilon=1.5, delta=1e-6)
    if path.exists():
        return Ledger.open(path)
    return Ledger.create(path, data_name="clinic", budget=budget, adjacency=adjacency)


def _ledger_bytes() -> bytes:
    from tempfile import TemporaryDirectory

    with TemporaryDirectory() as folder:
        path = Path(folder) / "seed.ledger"
        with _new_ledger(path, EVENT.adjacency) as ledger:
            ledger.bind_data(b"records")
            ledger.commit(ledger.reserve(EVENT, run="run", round=0), b"first release")
            ledger.declare("declared", [(EVENT, 2)])
            ledger.reserve(EVENT, run="declared", round=0)
        return path.read_bytes()


def _ledger(path: Path) -> None:
    for beside in ("-wal", "-shm", "-journal"):
        Path(f"{path}{beside}").unlink(missing_ok=True)
    with Ledger.open(path, timeout=0.1) as ledger:
        ledger.spent()
        list(ledger.rows())
        with suppress(LedgerError):
            ledger.verify()
        ledger.reserve(EVENT, run="run", round=5)


def _arrays(values: Any) -> bytes:
    buffer = io.BytesIO()
    arrays: dict[str, Any] = {name: np.asarray(value) for name, value in values.items()}
    np.savez(buffer, **arrays)
    return buffer.getvalue()


MODEL: dict[str, Any] = {
    "theta": [0.5, -1.0, 2.0, 0.0],
    "format": 1,
    "model_settings": ModelSection(name="logistic", l2=0.1).model_dump_json(),
    "guests": "{}",
    "seed": 0,
    "task": "binary",
    "features": ["a", "b", "c"],
    "classes": ["no", "yes"],
    "image_shape": np.zeros(0).tolist(),
    "schema": "",
    "max_norm": 1.7,
    "feature_norm": 1.0,
    "intercept": 1.0,
    "scaling": "clip",
}


def _archive_bytes() -> bytes:
    from tempfile import TemporaryDirectory

    parts = {"a/b": b"content", "c": b""}
    with TemporaryDirectory() as folder:
        path = Path(folder) / "seed.tar"
        write_archive(
            path, Archive(role="party", name="north", facts={"a": 1}, parts=parts, time="")
        )
        return path.read_bytes()


def _parquet_bytes() -> bytes:
    buffer = io.BytesIO()
    pq.write_table(pa.table({"y": ["a", "b"], "x": [0.1, 0.2], "c": ["u", None]}), buffer)
    return buffer.getvalue()


def _experiments() -> tuple[dict[str, Any], ...]:
    names = ("quickstart", "fedavg", "schedules", "persons", "second_order")
    return tuple(read_toml(SIMULATIONS / "experiments" / f"{each}.toml", "it") for each in names)


_RUN = bytes(32)
_QUERY = encoding.to_bytes(gradient_query(0))
_REQUEST = Request(
    messages=(
        Join(run=_RUN, round=0, party=0, plan=b"{}"),
        Announce(run=_RUN, round=1, party=0, cohort=(0, 1, 2), minimum=2),
    ),
    query=_QUERY,
).to_bytes()
_PLAN = StatedPlan.of(scenes.gaussian_plan(), run="r", clip=1.0).to_bytes()
_SIGNED = _statements()
_VALUES = tuple(canonical(json.loads(each)["document"]["statement"]) for each in _SIGNED)
_KEY = Ed25519PrivateKey.from_private_bytes(bytes(32))
_PUBLIC = _KEY.public_key().public_bytes_raw()
_BUNDLE = write_bundle(
    Member(name="north", identity=_PUBLIC, node=node_line(0)), _KEY, federation="clinics"
)
_INVITATION = Invitation(
    federation=parse_federation(FEDERATION),
    ca=new_authority("clinics").certificate.decode(),
    identity=_PUBLIC,
).to_toml()
_CSV = (b'y,x,c\na,0.5,u\nb,1e9,v\n"a","0.1","u"\n', b"y,x,c\r\na,,\r\nb,nan,\r\n")
_TABLE = parse_schema(SCHEMA)

READERS: dict[str, Reader] = {
    "query": Reader(
        read=_query,
        errors=(ValueError,),
        seeds=(_QUERY,),
        write=_query_bytes,
        values=(_query_values(_QUERY),),
    ),
    "request": Reader(read=_request, errors=(MalformedMessage,), seeds=(_REQUEST,)),
    "reply": Reader(
        read=lambda data, _: Reply.from_bytes(data),
        errors=(MalformedMessage,),
        seeds=(Reply(messages=(), refusal="no").to_bytes(), _REQUEST),
    ),
    "plan": Reader(
        read=_plan,
        errors=(QueryRefused,),
        seeds=(_PLAN,),
        write=canonical,
        values=(json.loads(_PLAN),),
    ),
    "statement": Reader(
        read=_statement,
        errors=(NotCanonical,),
        seeds=_SIGNED,
        write=_statement_bytes,
        values=tuple(map(json.loads, _SIGNED)),
    ),
    "statement values": Reader(
        read=lambda data, _: to_text(read_values(parse_json(data))),
        errors=(ValueError, LookupError, TypeError, AttributeError, ArithmeticError),
        seeds=_VALUES,
        write=canonical,
        values=tuple(map(json.loads, _VALUES)),
    ),
    "party file": Reader(
        read=from_file("party.toml", read_party),
        errors=(ValueError,),
        seeds=(_toml(parties.file()),),
        write=_toml,
        values=(parties.file(),),
    ),
    "roster": Reader(
        read=from_file("roster.toml", read_roster),
        errors=(ValueError,),
        seeds=(_toml(Chain().last.to_dict()),),
        write=_toml,
        values=(Chain().last.to_dict(),),
    ),
    "bundle": Reader(
        read=from_file("bundle.toml", lambda path: read_bundle(path, federation="clinics")),
        errors=(ValueError,),
        seeds=(_BUNDLE.encode(),),
        write=_toml,
        values=(parse_toml(_BUNDLE, "it"),),
    ),
    "invitation": Reader(
        read=from_file("invitation.toml", read_invitation),
        errors=(ValueError,),
        seeds=(_INVITATION.encode(),),
        write=_toml,
        values=(parse_toml(_INVITATION, "it"),),
    ),
    "experiment": Reader(
        read=from_file("experiment.toml", read_experiment),
        errors=(ValueError,),
        seeds=tuple(map(_toml, _experiments())),
        write=_toml,
        values=_experiments(),
    ),
    "schema": Reader(
        read=from_file("schema.toml", read_schema),
        errors=(DataError,),
        seeds=(_toml(SCHEMA),),
        write=_toml,
        values=(SCHEMA,),
    ),
    "csv": Reader(
        read=from_file("table.csv", lambda path: read_table(path, _TABLE)),
        errors=(DataError,),
        seeds=_CSV,
    ),
    "parquet": Reader(
        read=from_file("table.parquet", lambda path: read_table(path, _TABLE)),
        errors=(DataError,),
        seeds=(_parquet_bytes(),),
    ),
    "ledger": Reader(
        read=from_file("party.ledger", _ledger),
        errors=(LedgerError, BudgetExceeded),
        seeds=(_ledger_bytes(),),
    ),
    "model": Reader(
        read=from_file("model.npz", read_model),
        errors=(ValueError,),
        seeds=(_arrays(MODEL),),
        write=_arrays,
        values=(MODEL,),
    ),
    "backup": Reader(
        read=from_file("backup.tar", read_archive),
        errors=(ValueError,),
        seeds=(_archive_bytes(),),
    ),
}
"""By name."""
