"""The test suite, which mirrors the tree."""
