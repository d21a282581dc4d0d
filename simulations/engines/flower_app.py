"""The Flower App by which a run is handed to Flower.

What it ships is a reference: every process runs the fedpriv that is installed where it is.
"""

from __future__ import annotations

from typing import Any

PROJECT: dict[str, Any] = {
    "project": {
        "name": "fedpriv-run",
        "version": "1.0.0",
        "description": "one run of an experiment",
        "license": "Apache-2.0",
    },
    "tool": {
        "flwr": {
            "app": {
                "publisher": "fedpriv",
                "components": {
                    "serverapp": "fedpriv.simulations.server_app:app",
                    "clientapp": "fedpriv.simulations.client_app:app",
                },
                "config": {"experiment": "", "config": "", "output": "", "roster": "", "job": ""},
            }
        }
    },
}
"""Its pyproject.toml; the run config says which experiment, and which job."""
