"""Work on public data: tuning, probing of schedules, training of protectors."""
