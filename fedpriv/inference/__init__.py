"""Inference from released numbers: estimates whose standard errors know of the noise.

Start with `noisy_matrix`: a released matrix of second moments and the variance of its noise.
`linear` and `logistic` make estimates with covariances of it, or say why they do not;
`coefficients` makes the table that is published. Nothing here has seen a record, and nothing costs
privacy: all of it is post-processing. Arrays may have leading axes, one entry per repetition.
"""
