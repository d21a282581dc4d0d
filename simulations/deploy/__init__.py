"""Deployment: founding, joining, keys, certificates, processes and checks of a federation.

`run` is what happens in a deployed run, `flower` what is patched or replaced in Flower. Start with
`founding` and `roster`; then `changes` and `epochs`, who is added, expelled or has new keys, and
which roster a party accepts; then `programs`, the commands as they are run.
"""
