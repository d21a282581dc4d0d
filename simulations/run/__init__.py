"""One run: from the experiment to records, a strategy, releases, and the files written.

Start with `launch`, then `prepare` and `session` (started, interrupted, taken up again, finished).
`outcome` states which files and fields a release consists of; `files` writes them, `model_file` has
what prediction needs, `evaluation` has accuracy, `history` the per-round checkpoint.
"""
