"""Comparisons: strategies × ε × parties × seeds, intervals, findings in words, plots, the report.

Start with `cells`; `rows` are the rows of the table. Each of the others is one kind of thing that a
report says, and there are a few more of them than elsewhere.
"""
