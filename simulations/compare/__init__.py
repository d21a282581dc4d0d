"""Comparisons: strategies × ε × parties × seeds, intervals, findings in words, plots, the report.

Start with `cells`; `rows` are what the table shows.
"""
