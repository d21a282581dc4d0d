"""What may look at public data: tuning, probing of schedules, training of protectors."""
