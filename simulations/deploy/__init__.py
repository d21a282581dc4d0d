"""Deployment: keys, certificates, processes and checks of a federation on real machines."""
