"""Plans of federated statistics: many tables and moments as one vector, released with one noise.

Start with `statistics_blocks`, the kinds of sums; `statistics_design` combines them into one vector
and computes its joint sensitivity, `statistics` plans its release.
"""
