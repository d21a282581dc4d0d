"""What is patched or replaced in Flower 1.41: SuperLink, SuperNode, and who runs their tasks."""
