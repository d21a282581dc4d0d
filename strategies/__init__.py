"""Server strategies: one learning algorithm a file."""
