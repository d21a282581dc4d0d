"""Plans of federated statistics: many tables and moments as one vector with one noise.

Start with `statistics_blocks`, the kinds of sums; `statistics_design` puts them into one vector and
knows its joint sensitivity, `statistics` plans its release.
"""
