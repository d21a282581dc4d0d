"""Jobs beside training: attest a statement, hand a model over, evaluate it, cancel a run.

Start with `dispatch`: the run config of a Flower run says which job it is. `errands` sends one
message to every party that is there; `cancelling` is what becomes of a cancelled run at the server.
What a party does when a run is cancelled, a model comes or a statement is to be signed is in
`fedpriv.federation.deployed.errands`.
"""
