"""What is patched or replaced in Flower 1.41: SuperLink, SuperNode, and who runs their tasks.

Start with `patches`, the list of all of it, then `superlink`, `supernode` and `worker`. What a node
may send is settled in `gates`; how long a task may take in `deadlines` and `forks`; who waits for
whom in `held`; of a run's bundle nothing is taken but `run_config`. One file for each part of
Flower that is touched, and so a few more than elsewhere.
"""
