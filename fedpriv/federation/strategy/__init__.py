"""What a strategy is: it asks, gets a sum, releases with noise, and learns.

Start with `base`: noise planned beforehand. `adaptive`: noise chosen on the way, through a filter;
`joint`: one release after many exact sums; `flower`: the same in Flower's own loop. The strategies
themselves are in `fedpriv.strategies`; the noise is added to the sum by
`fedpriv.privacy.mechanisms.mechanism`.
"""
