"""Newest Flower: run the deployment tests against the newest release.

``make flower-next``. The environment is a fresh one, which borrows every package but Flower, and
what that release needs anew, from the one that runs this; where its requirements cannot be met, it
is tested without. First comes what of Flower's inside has changed, by ``parts.toml``.
"""

from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from shutil import rmtree

ROOT = Path(__file__).parents[1]
PLACE = ROOT / ".venv-flower"
TESTS = (
    "test_patches",
    "test_real_fleet",
    "test_real_replies",
    "test_real_bodies",
    "test_real_processes",
)


def main() -> int:
    """Make the environment, print what it has, and run the tests; their exit status."""
    python, newest = fresh(PLACE), releases()[0]
    if install(python, newest):
        print(f"Flower {newest}", flush=True)
    elif install(python, newest, "--no-deps"):
        print(f"Flower {newest}, with older packages than it asks for", flush=True)
    else:
        print(f"Flower {newest} cannot be installed", flush=True)
        return 1
    files = [f"tests/simulations/deploy/{name}.py" for name in TESTS]
    command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=short", *files]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


def fresh(place: Path) -> str:
    """An environment without packages of its own, which sees those of this one; its Python."""
    rmtree(place, ignore_errors=True)
    venv.create(place)
    (own,) = place.glob("lib/python*/site-packages")
    seen = [each for each in sys.path if Path(each).name == "site-packages"]
    (own / "borrowed.pth").write_text("\n".join([str(ROOT), *seen, ""]))
    programs = place / Path(sysconfig.get_path("scripts")).name
    command = programs / "fedpriv"
    command.write_text(
        f"#!{programs / 'python'}\nfrom fedpriv.simulations.cli import main\nmain()\n"
    )
    command.chmod(0o755)
    return str(programs / "python")


def releases() -> list[str]:
    """Flower's releases, the newest first."""
    asked = [sys.executable, "-m", "pip", "index", "versions", "flwr"]
    said = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
    found = re.search(r"Available versions: (.*)", said)
    return found.group(1).split(", ") if found else []


def install(python: str, version: str, *options: str) -> bool:
    """Install a release, and only what it needs newer than it is here; whether that worked."""
    pip = [sys.executable, "-m", "pip", "--python", python, "--quiet"]
    command = [*pip, "install", *options, f"flwr=={version}"]
    return not subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
