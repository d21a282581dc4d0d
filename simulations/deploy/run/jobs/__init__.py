"""Jobs besides training: attest a statement, hand over a model, evaluate it, cancel a run.

Start with `dispatch`: the run config of a Flower run says which job it is. `errands` sends one
message to every party that is online; `cancelling` handles a cancelled run at the server.
What a party does when a run is cancelled, a model arrives or a statement is to be signed is in
`fedpriv.federation.deployed.errands`.
"""
