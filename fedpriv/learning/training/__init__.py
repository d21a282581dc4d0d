"""Local training, the inner loop of federated averaging: each party turns the model into an update.

Start with `settings` (`LocalSgd`: what a party does) and `trainer` (`LocalTrainer`: all parties of
a process). `summed` clips, rounds and adds updates; the other files are ways to compute them: the
general one in `general`, the others with compiled loops on `kernels`.
"""
