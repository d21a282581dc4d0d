"""Evidence of a dossier: the files of a finished run that it is made from, and no others.

**For a release only the files of its outcome are read**, by their names in
`fedpriv.simulations.run.release_outcome`, and from an audit only what it says about its claim. So a
dossier is post-processing of published data, whatever it says, and is covered by the same
guarantee. A simulation is read in the same way.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Self

from fedpriv._json import parse_json
from fedpriv._toml import parse_toml
from fedpriv.privacy.ledger.storage.chain import canonical_json
from fedpriv.privacy.statement.signed import NotCanonical, SignedStatement, read_signed
from fedpriv.simulations.run.release_outcome import DESCRIBED_FILES, FILES, RESULT, SIGNED, sift
from fedpriv.simulations.run.statement.entry import read_entry

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

AUDIT = "audit.json"
"""What `fedpriv audit` left, which is made from crafted records."""

NEEDED = (
    "config.toml",
    "plan.json",
    "result.json",
    "statement.json",
    "statement.txt",
    "statement.yaml",
)
DEPLOYED = "deployment"
"""The engine of a deployed run."""
MODELS = ("model.npz", "statistics.json")
"""What a run releases: one of the two."""
_SAID = (
    "config_hash", "fedpriv", "strategy", "unit", "adjacency", "claimed", "neighbours", "reach",
    "sees", "runs", "confidence", "method", "mu", "epsilon", "problem", "passed",
)  # fmt: skip
_MOST_BYTES = 1 << 26


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What the files of a finished run say.

    Attributes:
        files: Every file by its name, byte by byte.
        result: ``result.json``.
        plan: ``plan.json``.
        statement: ``statement.json``.
        registry: The entry for a registry, ``statement.yaml``.
        configuration: ``config.toml``.
        signed: The signed statement of a deployed run, not checked here; None of others.
        audit: What an audit of the same strategy said; None without one.
    """

    files: Mapping[str, bytes]
    result: Mapping[str, Any]
    plan: Mapping[str, Any]
    statement: Mapping[str, Any]
    registry: Mapping[str, Any]
    configuration: Mapping[str, Any]
    signed: SignedStatement | None = None
    audit: Mapping[str, Any] | None = None

    @property
    def simulated(self) -> bool:
        """Whether it promises nothing."""
        return bool(self.statement["status"] != "real")

    @property
    def deployed(self) -> bool:
        """Whether the parties kept their records: by the result, or by the experiment."""
        run = self.configuration.get("run", {})
        return DEPLOYED in (self.result["engine"], run.get("engine"))

    @property
    def run(self) -> str:
        """The name of the run."""
        return str(self.statement["run"]["run"])

    @classmethod
    def of_run(cls, directory: Path, *, audit: Path | None = None) -> Self:
        """The evidence in the directory of a finished run, with an audit from elsewhere.

        Raises:
            ValueError: The run is not finished, or guarantees nothing; a file cannot be read.
        """
        if not (directory / "result.json").exists():
            raise ValueError(
                f"{str(directory)!r} holds no result.json: it is not the directory of a finished "
                "run, simulated, released or deployed. A dossier is made when a run is done."
            )
        files = {
            name: _read(directory / _stated(name)) for name in NEEDED if _there(directory, name)
        }
        if (directory / _stated(SIGNED)).exists():
            files[SIGNED] = _read(directory / SIGNED)
        if audit is not None:
            files[AUDIT] = _sifted_audit(audit / AUDIT if audit.is_dir() else audit)
        return cls.of_files(files)

    @classmethod
    def of_files(cls, files: Mapping[str, bytes]) -> Self:
        """What files say; the same for those of a run and for those in a bundle.

        Raises:
            ValueError: One is missing or damaged, or there is no guarantee to speak of.
        """
        if "statement.json" in files and _json(files, "statement.json").get("guarantee") is None:
            raise ValueError(
                "a dossier is about a guarantee, and the run has none: its strategy adds no noise. "
                "Make one of a run whose strategy is private."
            )
        if missing := [name for name in NEEDED if name not in files]:
            raise ValueError(f"{missing[0]} is missing: a dossier is made from it.")
        result, statement = _json(files, "result.json"), _json(files, "statement.json")
        if statement.get("status") == "real":
            sift(result, RESULT)
        evidence = cls(
            files=files,
            result=result,
            plan=_json(files, "plan.json"),
            statement=statement,
            registry=read_entry(files["statement.yaml"]),
            configuration=parse_toml(_text(files["config.toml"], "config.toml"), "config.toml"),
            signed=_signed(files[SIGNED]) if SIGNED in files else None,
            audit=_json(files, AUDIT) if AUDIT in files else None,
        )
        try:
            evidence._require_one_run()
        except (KeyError, TypeError, AttributeError):
            raise ValueError("the files lack a part: they were changed or damaged.") from None
        return evidence

    def _require_one_run(self) -> None:
        """Refuse files that are not of one and the same run, and an audit of something else."""
        if self.result.get("run") != self.statement["run"]["run"]:
            raise ValueError("result.json and statement.json are of different runs.")
        if not _same(self.plan, self.statement["plan"]):
            raise ValueError("plan.json is not the plan of statement.json.")
        signed = None if self.signed is None else self.signed.document.get("statement")
        if self.signed is not None and not _same(signed, self.statement):
            raise ValueError(f"{SIGNED} is of another statement than statement.json.")
        if self.signed is not None and self.result.get("engine") != DEPLOYED:
            raise ValueError(f"result.json is of no deployed run, and {SIGNED} is of one.")
        if self.deployed and self.signed is None:
            raise ValueError(
                f"a deployed run has a {SIGNED}, and there is none: `fedpriv deploy attest` "
                f"signs it."
            )
        if self.audit is None:
            return
        guarantee = self.statement["guarantee"]
        own = {"strategy": self.plan["strategy"]} | {
            name: guarantee[name] for name in ("unit", "adjacency")
        }
        for name, value in own.items():
            if self.audit.get(name) != value:
                raise ValueError(
                    f"the audit is of {name} = {self.audit.get(name)!r}, and the run of {value!r}: "
                    "it says nothing about this run. Audit the experiment of the run."
                )


def _same(one: object, other: object) -> bool:
    """Whether two values have equal JSON: in Python, True, 1 and 1.0 are equal."""
    return canonical_json(one) == canonical_json(other)


def model_hash(directory: Path) -> dict[str, str]:
    """SHA-256 of what was released, by the name of its file."""
    return {
        name: sha256(_read(directory / _stated(name))).hexdigest()
        for name in MODELS
        if (directory / name).exists()
    }


def _there(directory: Path, name: str) -> bool:
    return (directory / name).exists()


def _stated(name: str) -> str:
    """The name of a file of an outcome; any other is an error, and nothing is read."""
    if name not in {*FILES, *DESCRIBED_FILES, SIGNED}:
        raise RuntimeError(f"{name} is no part of an outcome: a dossier must not read it.")
    return name


def _read(path: Path) -> bytes:
    try:
        if path.stat().st_size > _MOST_BYTES and path.name not in MODELS:
            raise ValueError(f"{str(path)!r} must have at most {_MOST_BYTES} bytes.")
        return path.read_bytes()
    except OSError as error:
        raise ValueError(f"{str(path)!r} cannot be read: {error.strerror}.") from None


def _sifted_audit(path: Path) -> bytes:
    """What an audit says about its claim, without private facts such as its duration."""
    values = _json({AUDIT: _read(path)}, AUDIT)
    if not values.keys() >= {*_SAID}:
        raise ValueError(f"{str(path)!r} is not what `fedpriv audit` leaves.")
    said = {name: values[name] for name in _SAID}
    return (json.dumps(said, indent=2, allow_nan=False) + "\n").encode()


def _text(data: bytes, name: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ValueError(f"{name} is not text: the file was changed or damaged.") from None


def _json(files: Mapping[str, bytes], name: str) -> dict[str, Any]:
    try:
        values = parse_json(files[name])
    except ValueError:
        values = None
    if not isinstance(values, dict):
        raise ValueError(f"{name} is not JSON: the file was changed or damaged.")
    return values


def _signed(data: bytes) -> SignedStatement:
    try:
        return read_signed(data)
    except NotCanonical as error:
        raise ValueError(f"{SIGNED} is not a signed statement: {error}") from None
