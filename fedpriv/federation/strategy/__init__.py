"""Base classes of strategies: ask for a sum, release it with noise, learn from it.

Start with `base`: noise planned beforehand. `adaptive`: noise chosen adaptively, with a filter;
`joint`: one release after many exact sums; `flower`: the same in Flower's own loop. The strategies
themselves are in `fedpriv.strategies`; the noise is added to the sum by
`fedpriv.privacy.mechanisms.mechanism`.
"""
