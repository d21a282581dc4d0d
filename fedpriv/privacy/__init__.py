"""Differential privacy: mechanisms, events, accountants, calibration, filters.

Import what you need from the modules; nothing heavy is loaded here.
"""
