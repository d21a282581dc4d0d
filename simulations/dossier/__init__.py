"""The dossier of a finished run, for a privacy officer: what it released, and what that guarantees.

`evidence` reads the files of a run, and of a release those of its outcome alone; `content` makes
the dossier from them, with the answers of `questions` and the `annex`; `bundle` writes all of it,
signed; `verifying` checks a bundle, without a network.
"""
