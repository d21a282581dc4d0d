"""Mutants: break the product on purpose, one line at a time, and see a test notice.

``make mutants``. Two run at a time. The exit status is 1 if one survives, if a named test fails
without any mutant, or if the list no longer fits the source.
"""

from __future__ import annotations

import argparse
import sys
from time import monotonic

from tests.mutants.mutant import Mutant, read, stale
from tests.mutants.page import PAGE, page
from tests.mutants.running import GOOD, Job, Verdict, each, load_libraries, untouched

_SHARES = 8  # of the tests without mutants: more than workers, so that none waits for long


def main(arguments: list[str] | None = None) -> int:
    """Run the mutants that are asked for; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("words", nargs="*", help="only mutants whose line has all these words")
    parser.add_argument("--workers", type=int, default=2, help="how many at a time")
    parser.add_argument("--page", action="store_true", help="write docs/mutants.md; run nothing")
    parser.add_argument("--sample", action="store_true", help="the few of `make test`")
    asked = parser.parse_args(arguments)
    mutants = read()
    if problems := stale(mutants):
        print("\n".join(problems))
        return 1
    if asked.page:
        PAGE.write_text(page(mutants))
        return 0
    chosen = [
        mutant
        for mutant in mutants
        if all(word in _line(mutant) for word in asked.words)
        and (mutant.sample or not asked.sample)
    ]
    load_libraries()
    # The suite has run the tests of the sample without mutants.
    jobs = [] if asked.sample else untouched(chosen, shares=_SHARES)
    return _run([*jobs, *(Job(tests=each.tests, mutant=each) for each in chosen)], asked.workers)


def _line(mutant: Mutant) -> str:
    return " ".join((mutant.area, mutant.file, mutant.breaks, *mutant.killed_by))


def _run(jobs: list[Job], workers: int) -> int:
    started, done = monotonic(), list[Job]()
    for job in each(jobs, workers=workers):
        done.append(job)
        what = job.mutant or f"without a mutant: {len(job.tests)} tests"
        print(f"{_word(job):11} {job.seconds:5.1f} s  {what}", flush=True)
    bad = [job for job in done if job.verdict not in GOOD]
    for job in bad:
        print(f"\n{_word(job)}: {job.mutant or 'without a mutant'}\n{job.said}")
    found = [job.verdict for job in done if job.mutant]
    counted = ", ".join(f"{found.count(verdict)} {verdict.value.lower()}" for verdict in Verdict)
    print(f"\n{len(found)} mutants in {monotonic() - started:.0f} s: {counted}")
    return 1 if bad or not found else 0


def _word(job: Job) -> str:
    if job.mutant is None:
        return "passed" if job.verdict is Verdict.NEUTRAL else "FAILED"
    return job.verdict.value


if __name__ == "__main__":
    sys.exit(main())
