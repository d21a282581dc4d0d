"""Inference from released numbers: estimates whose standard errors account for the noise.

Start with `noisy_matrix`: a released matrix of second moments and the variance of its noise.
`linear` and `logistic` compute estimates and their covariances from it, or say why they cannot;
`coefficients` makes the published table. This package never sees a record and costs no privacy:
everything here is post-processing. Arrays may have leading axes, one entry per repetition.
"""
