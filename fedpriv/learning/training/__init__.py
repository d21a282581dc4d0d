"""Local training, the inner loop of federated averaging: from a common model to one update a party.

Start with `settings` (`LocalSgd`: what a party does) and `trainer` (`LocalTrainer`: all parties of
a process). `summed` clips, rounds and adds updates; the other files are ways to compute them, the
general one in `general`, those with compiled loops on `kernels`.
"""
