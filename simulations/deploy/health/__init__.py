"""Health of a member: before a run, during one, and after a crash.

Start with `doctor` (all checks, of which `roster_checks` and `reach` have some), then `status`, for
which every process leaves a `heartbeat`; `recovery` ends what a crash left behind.
"""
