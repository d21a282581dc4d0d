"""Deployment: a federation of real processes, from its creation to routine operation.

- here: `founding` creates it; its file (`federation`) and budget, `folders`, `keys`,
  `certificates`, `templates`; the `programs` that run, and `processes` that outlive the command.
- `members`: the roster, its epochs, and who is added, expelled or has new keys.
- `run`: a deployed run, and in `run.jobs` what comes after one.
- `flower`: what is patched or replaced in Flower; how long a task may take.
- `health`: doctor, status, heartbeats, recovery after a crash.
- `backups`: what a backup contains, and when one may be restored.

May import everything else. Start with `founding`, then `members.roster` and `programs`.
"""
