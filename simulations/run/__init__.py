"""One run: from the experiment to records, a strategy, releases, and the files written.

Start with `launch`, then `prepare` and `session` (started, saved in a checkpoint, taken up again,
finished). `outcome` states which files and fields a release consists of; `files` writes them and
the checkpoint, `history` has what is in it, `model_file` what prediction needs, `evaluation`
accuracy.
"""
