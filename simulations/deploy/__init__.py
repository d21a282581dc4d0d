"""Deployment: founding, joining, keys, certificates, processes and checks of a federation.

`run` is what happens in a deployed run, `flower` what is patched or replaced in Flower. Start with
`founding`, then `programs` (the commands as they are run).
"""
