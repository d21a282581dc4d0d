"""Built-in data sets by name: archives on disk, scikit-learn's, Chem97, synthetic problems.

May import `fedpriv.data` beside it. Start with `registry`: the names, and `load`.
"""
