"""One run: from the experiment to records, a strategy, releases, and the files written.

Start with `launch`, then `prepare` and `session` (started, resumed, finished; it decides
when a checkpoint is written: every round of a release). `release_outcome` states which files and
fields a release consists of; `files` writes them and the checkpoint, `history` has its contents,
`model_file` what prediction needs. Accuracy is in `metrics`, the guarantee in `statement`. A few
more modules than elsewhere, one for each step of a run.
"""
