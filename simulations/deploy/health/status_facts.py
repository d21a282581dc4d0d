"""Status of a member as JSON-ready values: what `status --json` prints and a dashboard shows."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from fedpriv.simulations.deploy.health.status import Status, member_status
from fedpriv.simulations.deploy.thresholds import thresholds

if TYPE_CHECKING:
    from fedpriv.simulations.deploy.folders import PartyFolder, ServerFolder


def status_facts(folder: ServerFolder | PartyFolder) -> dict[str, Any]:
    """How a member is, now."""
    return {**facts(member_status(folder)), **tolerance(folder)}


def facts(found: Status) -> dict[str, Any]:
    """A status; the worker's heartbeat with its age."""
    values = asdict(found)
    values["runs"] = [{**asdict(run), "finished": run.finished} for run in found.runs]
    for name, beat in (("worker", found.worker), ("server", found.server)):
        if beat is not None:
            values[name]["age"] = round(time.time() - beat.time, 1)
    return {**values, "sound": found.sound}


def tolerance(folder: ServerFolder | PartyFolder) -> dict[str, Any]:
    """What the masks tolerate; nothing before the roster is there, or if no sum would be safe."""
    try:
        return {"thresholds": thresholds(folder)}
    except (ValueError, OSError):
        return {}
