"""The dossier of a finished run, for a privacy officer: what was released, and what is guaranteed.

`evidence` reads the files of a run, and for a release only those of its outcome; `content` makes
the dossier from them, with the answers of `questions` and the `annex`; `bundle` writes and signs
everything; `verifying` checks a bundle, offline.
"""
