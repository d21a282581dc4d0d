"""Gates of the SuperLink: who is let in, how much they may send, what they may say.

In the order of a request: `heads` (in time), `admission` (a registered key has signed), `bodies`
(length, memory, progress), `fleet_rules` (what a node may push, pull and confirm); and
`completeness`: a message is delivered when all of it is there.
"""
