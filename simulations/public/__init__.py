"""Work on public data: tuning, probing of schedules, training of protectors.

Start with `tuning`; `overlap` refuses public data that share records with private ones.
"""
