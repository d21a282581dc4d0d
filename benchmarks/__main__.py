"""Run every benchmark, or those that are named: `python -m benchmarks [NAME ...]`."""

from __future__ import annotations

import pkgutil
import subprocess
import sys

import benchmarks


def main(names: list[str]) -> int:
    """Run each in a process of its own, one after the other: they must not share a machine."""
    known = [m.name for m in pkgutil.iter_modules(benchmarks.__path__) if m.name != "__main__"]
    unknown = [name for name in names if name not in known]
    if unknown:
        print(f"benchmark must be one of {', '.join(known)}; got {', '.join(unknown)}.")
        return 2
    failed = []
    for name in names or known:
        print(f"\n=== {name}", flush=True)
        done = subprocess.run([sys.executable, "-m", f"benchmarks.{name}"], check=False)
        if done.returncode:
            failed.append(name)
    if failed:
        print(f"\nmissed their goals: {', '.join(failed)}")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
