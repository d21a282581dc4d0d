"""The statement of a run, as files: its guarantee, assumptions, coefficients, and an audit of it.

Start with `statements`; what a statement consists of is in `fedpriv.privacy.statement`.
"""
