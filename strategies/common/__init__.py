"""What strategies share: set-up and options, plans, schedules, server optimisers."""
