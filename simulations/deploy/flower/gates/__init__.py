"""Gates of the SuperLink: who is admitted, how much they may send, what they may say.

In the order of a request: `heads` (in time), `admission` (signed by a registered key), `bodies`
(length, memory, progress), `fleet_rules` (what a node may push, pull and confirm); and
`completeness`: a message is delivered when all of it has arrived.
"""
