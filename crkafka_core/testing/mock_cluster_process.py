"""The process of a mock broker: librdkafka's mock cluster, driven by one JSON command per line of standard input.

It is a process of its own because the mock cluster aborts on some client input (docs/clients.md C-B1); it ends when its input does,
and so with whoever started it. `crkafka_core.testing.mock_broker` is the other end.
"""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Callable
from typing import Any

import confluent_kafka

from crkafka_core.kafka.native.library import librdkafka

_INT, _I16, _I32, _I64, _TEXT, _HANDLE = (
    ctypes.c_int,
    ctypes.c_int16,
    ctypes.c_int32,
    ctypes.c_int64,
    ctypes.c_char_p,
    ctypes.c_void_p,
)

COMMANDS: dict[str, tuple[Any, ...]] = {
    "topic_create": (_TEXT, _INT, _INT),
    "topic_delete": (_TEXT,),
    "topic_set_error": (_TEXT, _INT),
    "partition_delete_records": (_TEXT, _I32, _I64),
    "partition_set_leader": (_TEXT, _I32, _I32),
    "broker_set_down": (_I32,),
    "broker_set_up": (_I32,),
    "broker_set_rtt": (_I32, _INT),
    "coordinator_set": (_TEXT, _TEXT, _I32),
    "group_initial_rebalance_delay_ms": (_I32,),
    "set_group_consumer_session_timeout_ms": (_INT,),
    "set_group_consumer_heartbeat_interval_ms": (_INT,),
    "clear_request_errors": (_I16,),
    "set_apiversion": (_I16, _I16, _I16),
}
"""Calls `rd_kafka_mock_<name>(cluster, …)`, with the types of what follows the cluster."""

_NO_RESULT = {
    "topic_set_error",
    "group_initial_rebalance_delay_ms",
    "set_group_consumer_session_timeout_ms",
    "set_group_consumer_heartbeat_interval_ms",
    "clear_request_errors",
}


class MockCluster:
    """librdkafka's mock cluster, reached through the library inside confluent-kafka's wheel."""

    def __init__(self, brokers: int) -> None:
        self._library = librdkafka()
        conf = self._function("rd_kafka_conf_new", _HANDLE)()
        error = ctypes.create_string_buffer(512)
        set_conf = self._function("rd_kafka_conf_set", _INT, _HANDLE, _TEXT, _TEXT, _TEXT, ctypes.c_size_t)
        for key, value in {"test.mock.num.brokers": str(brokers), "log_level": "0"}.items():
            if set_conf(conf, key.encode(), value.encode(), error, 512) != 0:
                raise RuntimeError(error.value.decode())
        new = self._function("rd_kafka_new", _HANDLE, _INT, _HANDLE, _TEXT, ctypes.c_size_t)
        self._client = new(0, conf, error, 512)
        if not self._client:
            raise RuntimeError(error.value.decode())
        self._cluster = self._function("rd_kafka_handle_mock_cluster", _HANDLE, _HANDLE)(self._client)

    def bootstrap(self) -> str:
        address: bytes = self._function("rd_kafka_mock_cluster_bootstraps", _TEXT, _HANDLE)(self._cluster)
        return address.decode()

    def call(self, name: str, arguments: list[Any]) -> None:
        """One command of `COMMANDS`; a result that is an error code is raised with the library's own words."""
        types = COMMANDS[name]
        result = None if name in _NO_RESULT else _INT
        encoded = [value.encode() if isinstance(value, str) else value for value in arguments]
        code = self._function(f"rd_kafka_mock_{name}", result, _HANDLE, *types)(self._cluster, *encoded)
        if code:
            raise RuntimeError(f"{name}{tuple(arguments)}: {confluent_kafka.KafkaError(code).str()}")

    def push_request_errors(self, api: int, errors: list[int]) -> None:
        """The next requests of this kind, at whichever broker, are answered with these errors, one each."""
        array = (_INT * len(errors))(*errors)
        function = self._function(
            "rd_kafka_mock_push_request_errors_array", None, _HANDLE, _I16, ctypes.c_size_t, ctypes.POINTER(_INT)
        )
        function(self._cluster, api, len(errors), array)

    def push_broker_errors(self, broker: int, api: int, errors: list[tuple[int, int]]) -> None:
        """The next requests of this kind at one broker get these (error, round-trip milliseconds), one each."""
        flat = [_INT(number) for pair in errors for number in pair]
        function = self._library.rd_kafka_mock_broker_push_request_error_rtts
        function.restype = _INT
        code = function(_HANDLE(self._cluster), _I32(broker), _I16(api), ctypes.c_size_t(len(errors)), *flat)
        if code:
            raise RuntimeError(f"broker {broker}: {confluent_kafka.KafkaError(code).str()}")

    def _function(self, name: str, result: Any, *types: Any) -> Callable[..., Any]:
        function = getattr(self._library, name)
        function.restype, function.argtypes = result, types
        return function  # type: ignore[no-any-return]


def main() -> None:
    cluster = MockCluster(int(sys.argv[1]))
    print(json.dumps({"bootstrap": cluster.bootstrap()}), flush=True)
    for line in sys.stdin:
        name, arguments = json.loads(line)
        try:
            if name in COMMANDS:
                cluster.call(name, arguments)
            else:
                getattr(cluster, name)(*arguments)
            answer = {}
        except Exception as failed:
            answer = {"error": str(failed) or repr(failed)}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
