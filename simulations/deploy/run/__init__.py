"""A deployed run: handed to Flower, carried out by the server, answered by the parties."""
