"""Ray for the `sharded` engine: processes of this machine, or of an existing cluster.

Processes started here listen on the loopback interface alone and accept orders only with a token
that this process drew; their working directory is a new, empty one, because Ray lets its workers
import from there first. They end with the session.
"""

from __future__ import annotations

import pickle
import secrets
import signal
import warnings
from contextlib import chdir, contextmanager, suppress
from importlib import import_module
from tempfile import TemporaryDirectory
from threading import current_thread, main_thread
from typing import TYPE_CHECKING, Any

from fedpriv._environment import environment
from fedpriv.learning.crew import processors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import ModuleType

_OBJECT_BYTES = 1 << 28  # for queries and samples in transit; anything beyond goes to disk
_INLINED_BYTES = 1 << 16  # Ray sends up to 100 kB with a call; more goes through shared memory
_TOKEN = secrets.token_hex(32)  # one per process: Ray reads it once
_QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
_HERE_ALONE = {
    **_QUIET,
    "PYTHONSAFEPATH": "1",
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": _TOKEN,
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # on Linux too, this means: loopback only
    # Ray's 15 yields to every other program; with 0, the first worker that is asked interrupts this
    # process before it has asked the next one.
    "RAY_worker_niceness": "5",
}


class RaySession:
    """A connection to Ray, and the actors started through it.

    Args:
        address: Of a cluster, as for `ray.init`; None starts processes on this machine, unless
            this process is connected already.
        workers: The number of actors; None for one per processor that Ray has.
    """

    def __init__(self, *, address: str | None, workers: int | None) -> None:
        self._actors: list[Any] = []
        self._folder: TemporaryDirectory[str] | None = None
        self._ray = _imported(local=address is None)
        self._connected_here = not self._ray.is_initialized()
        if self._connected_here:
            self._connect(address, workers)
        try:
            self.workers = self._checked(workers)
        except ValueError:
            self.close()
            raise

    @property
    def workers_per_machine(self) -> int:
        """How many of the actors share a machine, if they are spread evenly."""
        machines = sum(1 for node in self._ray.nodes() if node["Alive"])
        return -(-self.workers // max(1, machines))

    def hire(self, kind: type, *arguments: Any, **options: Any) -> Any:
        """A new actor of a class, with one processor; spread over the machines."""
        remote = self._ray.remote(num_cpus=1, max_restarts=0, scheduling_strategy="SPREAD")
        made = remote(kind).remote(*arguments, **options)
        self._actors.append(made)
        return made

    def ask(self, worker: Any, method: str, *arguments: Any) -> Any:
        """A reference to the result of an actor's method."""
        return getattr(worker, method).remote(*arguments)

    def share(self, value: Any) -> Any:
        """What to give to `ask` in the place of a value that several actors get.

        A small value is pickled once and sent with every call: reading it from Ray's shared memory
        would take milliseconds. A large one goes there, and to every machine once.
        """
        pickled = self._ray.cloudpickle.dumps(value)
        return _Pickled(pickled) if len(pickled) <= _INLINED_BYTES else self._ray.put(value)

    def first_of(self, references: Sequence[Any]) -> Any:
        """The first reference whose result is available, or never will be."""
        return self._ray.wait(references, num_returns=1)[0][0]

    def result(self, reference: Any) -> Any | None:
        """A result; None if its actor was lost. An error in the actor is raised here."""
        errors = self._ray.exceptions
        try:
            return self._ray.get(reference)
        except errors.RayTaskError as error:
            raise error.cause from None
        except (
            errors.RayActorError,
            errors.NodeDiedError,
            errors.OutOfMemoryError,
            errors.ObjectLostError,
        ):
            return None

    def close(self) -> None:
        """End the actors, and what was started for them. Calling it again does no harm."""
        if self._ray.is_initialized():
            for actor in self._actors:
                with suppress(self._ray.exceptions.RayError, ValueError):
                    self._ray.kill(actor)
            if self._connected_here:
                self._ray.shutdown()
        self._actors = []
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def _connect(self, address: str | None, workers: int | None) -> None:
        common = {"log_to_driver": False, "logging_level": "ERROR", "namespace": "fedpriv"}
        with _own_signals(), warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # about accelerators, which are unused
            if address is not None:
                with TemporaryDirectory(prefix="fedpriv-ray-") as empty, chdir(empty):
                    try:
                        self._ray.init(address=address, **common)
                    except (ConnectionError, RuntimeError, ValueError) as error:
                        raise ValueError(
                            f"run.ray_address must be that of a Ray cluster which runs, got "
                            f"{address!r}: {str(error).splitlines()[0]}"
                        ) from None
                return
            self._folder = TemporaryDirectory(prefix="fedpriv-ray-", ignore_cleanup_errors=True)
            with environment(_HERE_ALONE), chdir(self._folder.name):
                try:
                    self._ray.init(
                        address="local",
                        num_cpus=workers or processors(),
                        num_gpus=0,
                        include_dashboard=False,
                        object_store_memory=_OBJECT_BYTES,
                        _temp_dir=self._folder.name,
                        **common,
                    )
                except Exception as error:  # Ray has no specific class for it
                    raise ValueError(
                        f"Ray did not start: {str(error).splitlines()[0]} A very busy machine is "
                        "too slow for it: try again when it is less busy."
                    ) from None

    def _checked(self, workers: int | None) -> int:
        there = int(self._ray.cluster_resources().get("CPU", 0))
        wanted = workers or max(1, there)
        if wanted > there:
            raise ValueError(
                f"run.workers must be at most {there}, the processors that Ray has, got {wanted}."
            )
        return wanted


class _Pickled:
    """A value that is already pickled: whoever receives it has the value itself."""

    def __init__(self, pickled: bytes) -> None:
        self._pickled = pickled

    def __reduce__(self) -> tuple[Callable[[bytes], Any], tuple[bytes]]:
        return pickle.loads, (self._pickled,)


def _imported(*, local: bool) -> ModuleType:
    """Ray, configured before its import to stay on this machine, if it is started here."""
    try:
        with environment(_HERE_ALONE if local else _QUIET):
            return import_module("ray")
    except ImportError:
        raise ValueError("engine = 'sharded' needs Ray: install fedpriv[ray].") from None


@contextmanager
def _own_signals() -> Iterator[None]:
    """Keep the current SIGINT and SIGTERM handlers, which Ray would replace by its own."""
    if current_thread() is not main_thread():
        yield
        return
    kept = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)
