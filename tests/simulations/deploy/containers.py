"""A member as its container runs it, without a container engine: by bubblewrap.

What the Dockerfile and the compose file ask for is read from them: command, environment, health
check, the one writable directory. The root is read-only, there is no capability, no new privilege,
and no process but the member's own.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from fedpriv.simulations.safe_path import installed_program

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[3]
DOCKERFILE = ROOT / "deployment" / "Dockerfile"
MEMBER = "/member"
_OWN = ("proc", "dev", "sys", "member")


def instructions() -> list[tuple[str, str]]:
    """The instructions of the Dockerfile in order; lines that go on are one."""
    lines = [
        line for line in DOCKERFILE.read_text().splitlines() if line and not line.startswith("#")
    ]
    whole = "\n".join(lines).replace("\\\n", " ")
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in whole.splitlines())]


def final_stage() -> list[tuple[str, str]]:
    """The instructions of what is delivered."""
    found = instructions()
    last = max(number for number, (word, _) in enumerate(found) if word == "FROM")
    return found[last:]


def environment() -> dict[str, str]:
    """What the image sets, but for PATH."""
    settings: dict[str, str] = {}
    for word, rest in final_stage():
        if word == "ENV":
            settings |= dict(setting.split("=", 1) for setting in shlex.split(rest))
    return {key: value for key, value in settings.items() if key != "PATH"}


def health_check() -> list[str]:
    """The command by which the image's health is checked."""
    (rest,) = (rest for word, rest in final_stage() if word == "HEALTHCHECK")
    found = re.search(r"CMD (\[.*\])", rest)
    assert found is not None
    command: list[str] = json.loads(found[1])
    return command


def service(name: str) -> dict[str, Any]:
    """A service of the compose file."""
    compose = yaml.safe_load((ROOT / "deployment" / "compose.yaml").read_text())
    found: dict[str, Any] = compose["services"][name]
    return found


def why_not() -> str | None:
    """Why no member can be contained here; None if it can be."""
    if shutil.which("bwrap") is None or shutil.which("nsenter") is None:
        return "bubblewrap or nsenter is not installed"
    tried = subprocess.run(
        ["bwrap", *_walls(), "true"], capture_output=True, text=True, check=False
    )
    return f"bubblewrap may not be used here: {tried.stderr.strip()}" if tried.returncode else None


@dataclass(frozen=True, kw_only=True)
class Container:
    """A member that is contained.

    Attributes:
        process: Bubblewrap, with whom all in it end.
        first: The first process in it, as the system numbers it.
    """

    process: subprocess.Popen[bytes]
    first: int

    def execute(self, *command: str) -> subprocess.CompletedProcess[str]:
        """A command in the container, as `docker exec` runs it."""
        program, *arguments = command
        path = installed_program(program) if program == "fedpriv" else program
        return subprocess.run(
            ["nsenter", "--preserve-credentials", "--user", "--mount", "--pid", "--ipc",
             f"--target={self.first}", "setpriv", "--no-new-privs", "--bounding-set=-all",
             "--inh-caps=-all", path, *arguments],
            capture_output=True, text=True, check=False, timeout=120, env=_environment(),
        )  # fmt: skip


@contextmanager
def contained(name: str, folder: Path) -> Iterator[Container]:
    """A service of the compose file, whose directory is ``folder``."""
    told, telling = os.pipe()
    command = [installed_program("fedpriv"), *service(name)["command"]]
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            ["bwrap", "--info-fd", str(telling), *_walls(),
             "--bind", str(folder), MEMBER, "--remount-ro", "/", "--chdir", MEMBER, *command],
            pass_fds=(telling,), env=_environment(), stdin=subprocess.DEVNULL, stdout=said,
            stderr=said,
        )  # fmt: skip
        os.close(telling)
        try:
            with os.fdopen(told) as info:
                facts = json.load(info)
            yield Container(process=process, first=facts["child-pid"])
        finally:
            process.kill()
            process.wait(timeout=30)


def _environment() -> dict[str, str]:
    return {**environment(), "PATH": "/usr/bin:/bin"}


def _walls() -> list[str]:
    """All of this machine's files, read-only, in a root of its own; nothing of its processes."""
    walls = [
        "--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--uid", "10001",
        "--gid", "10001", "--cap-drop", "ALL", "--die-with-parent", "--new-session",
    ]  # fmt: skip
    for entry in sorted(Path("/").iterdir()):
        if entry.is_symlink():
            walls += ["--symlink", str(entry.readlink()), str(entry)]
        elif entry.is_dir() and entry.name not in _OWN:
            walls += ["--ro-bind", str(entry), str(entry)]
    return [*walls, "--proc", "/proc", "--dev", "/dev", "--dir", MEMBER]
