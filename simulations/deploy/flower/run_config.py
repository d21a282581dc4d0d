"""Run config: all that is taken from a run of Flower's; its app bundle is not even fetched.

Flower ships an app with every run, an archive, and reads the run config from it. Half a megabyte of
it can unpack to a gigabyte. What a run needs is in the values that its submission overrides.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flwr.app.user_config import UserConfig
    from flwr.supercore.run import Run

MOST_BYTES = 256 * 1024


class ConfigRefused(ValueError):
    """The config of a run is larger than any experiment."""


def own_config(run: Run) -> UserConfig:
    """The config that was given when the run was submitted.

    Raises:
        ConfigRefused: It is too large.
    """
    size = sum(len(f"{key}{value}".encode()) for key, value in run.override_config.items())
    if size > MOST_BYTES:
        raise ConfigRefused(
            f"the run config must have at most {MOST_BYTES} bytes, got {size}: shorten the "
            "experiment file."
        )
    return dict(run.override_config)
