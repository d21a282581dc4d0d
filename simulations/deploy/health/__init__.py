"""Health of a member: before a run, during a run, and after a crash.

Start with `doctor` (all checks, including those of `roster_checks` and `reach`), then `status`, for
which every process leaves a `heartbeat`; `recovery` ends what a crash left behind.
"""
