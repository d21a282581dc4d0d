"""The subcommands of `fedpriv`, one file for each subject."""
