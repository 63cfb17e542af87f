"""Private names of Dagster that the launcher needs."""

from dagster._cli.api import _execute_run_command_body as execute_run
from dagster._core.code_pointer import CodePointer, ModuleCodePointer
from dagster._core.definitions.reconstruct import def_from_pointer
from dagster._core.instance.ref import InstanceRef
from dagster._core.launcher import CheckRunHealthResult, DefaultRunLauncher, LaunchRunContext, WorkerStatus
from dagster._core.origin import JobPythonOrigin
from dagster._core.storage.tags import GRPC_INFO_TAG
from dagster._serdes import deserialize_value, serialize_value
from dagster._serdes.config_class import ConfigurableClassData

__all__ = [
    "GRPC_INFO_TAG",
    "CheckRunHealthResult",
    "CodePointer",
    "ConfigurableClassData",
    "DefaultRunLauncher",
    "InstanceRef",
    "JobPythonOrigin",
    "LaunchRunContext",
    "ModuleCodePointer",
    "WorkerStatus",
    "def_from_pointer",
    "deserialize_value",
    "execute_run",
    "load",
    "serialize_value",
]


def load() -> None:
    """Import what a run imports first: before it is asked for."""
    import dagster._core.execution.api
    import dagster._core.storage.event_log.sqlite
    import dagster._core.storage.runs.sqlite  # noqa: F401
