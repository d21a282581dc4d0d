"""What is patched or replaced in Flower 1.41: SuperLink, SuperNode, and who runs their tasks.

Start with `patches`, the complete list, then `superlink`, `supernode` and `worker`. `gates` limit
what a node may send; `deadlines` and `forks` limit how long a task may take; `held` is for requests
that wait; of a run's bundle only `run_config` is used. One file for each part of Flower that is
touched, and so a few more than elsewhere.
"""
