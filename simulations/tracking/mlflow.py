"""MLflow as a tracker: settings as parameters, rounds as metrics."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

from fedpriv.data.errors import import_optional

if TYPE_CHECKING:
    from collections.abc import Mapping

_EXPERIMENT = "fedpriv"
_LONGEST = 500  # of a parameter's value, as MLflow takes it everywhere


class Mlflow:
    """Logs to an MLflow server, or to your own database.

    Args:
        address: Of the server or database, such as "http://localhost:5000" or
            "sqlite:///mlflow.db"; None for what MLflow's own settings say.
    """

    def __init__(self, address: str | None = None) -> None:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # before it is imported
        self._mlflow: Any = import_optional("mlflow", extra="tracking")
        self._address = address
        self._ended = False

    def begin(self, name: str, settings: Mapping[str, str]) -> None:
        """Make a run of this name in the MLflow experiment "fedpriv"."""
        from mlflow.entities import Param

        self._client = self._mlflow.MlflowClient(tracking_uri=self._address)
        known = self._client.get_experiment_by_name(_EXPERIMENT)
        home = self._client.create_experiment(_EXPERIMENT) if known is None else known.experiment_id
        self._run = self._client.create_run(home, run_name=name).info.run_id
        told = [Param(key, value[:_LONGEST]) for key, value in settings.items()]
        self._client.log_batch(self._run, params=told)

    def follow(self, number: int, values: Mapping[str, float]) -> None:
        """A step of each metric."""
        from mlflow.entities import Metric

        now = int(1000 * time.time())
        steps = [Metric(name, value, now, number) for name, value in values.items()]
        self._client.log_batch(self._run, metrics=steps)

    def end(self, values: Mapping[str, float]) -> None:
        """The result, as metrics of their own."""
        self.follow(0, {f"result.{name}": value for name, value in values.items()})
        self._ended = True

    def close(self) -> None:
        """Tell MLflow that the run is finished, or was interrupted."""
        self._client.set_terminated(self._run, "FINISHED" if self._ended else "KILLED")
