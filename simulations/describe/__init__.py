"""`fedpriv describe`: from noisy sums to statistics, tables in a terminal, and pictures.

Everything here but `prepare` is post-processing of released numbers: it reads no record. Start with
`estimates`; `trees` has quantiles, `crossed` two-way tables and correlations, `survival` curves.
"""
