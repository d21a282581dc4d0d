"""What stands between a strategy and the parties: queries, the party and its guard, the engines."""
