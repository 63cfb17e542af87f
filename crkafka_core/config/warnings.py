"""Warnings of settings that work, but not as written or not safely; one sentence each."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import ip_address
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

from crkafka_core.config import location, reference, secret
from crkafka_core.config.kafka_section import MAX_METADATA_REFRESH_MS, OFF

if TYPE_CHECKING:
    from crkafka_core.config.region_config import RegionConfig


def warnings(config: RegionConfig) -> Iterator[str]:
    refresh = config.kafka.get("topic.metadata.refresh.interval.ms")
    if refresh is not None and not 0 < int(refresh) <= MAX_METADATA_REFRESH_MS:
        yield (
            f"kafka: topic.metadata.refresh.interval.ms={refresh} is replaced by {MAX_METADATA_REFRESH_MS}, so that new "
            "partitions are seen within seconds."
        )
    properties = {k: str(v).lower() for k, v in config.kafka.items()}
    if properties.get("security.protocol") == "sasl_plaintext":
        yield "kafka: security.protocol=SASL_PLAINTEXT sends the login and all records unencrypted: write SASL_SSL."
    others = "can take the broker's place."
    if properties.get("enable.ssl.certificate.verification") in OFF:
        yield f"kafka: enable.ssl.certificate.verification is off: others {others}"
    elif properties.get("ssl.endpoint.identification.algorithm") == "none":
        yield f"kafka: ssl.endpoint.identification.algorithm=none: the owner of any certificate of that authority {others}"
    poll = config.kafka.get("max.poll.interval.ms")
    needed = min(int(3000 * max(config.drain_timeout, config.reset_timeout)), 86_400_000)
    if poll is not None and int(poll) < needed:
        yield (
            f"kafka: max.poll.interval.ms={poll} is below three times the longest of drain_timeout and reset_timeout "
            f"({needed}): Kafka may take a member's partitions during a long cut."
        )
    yield from _unprotected(config)
    if "end" in (config.start.position, config.start.new_partitions):
        yield "start: `end` leaves out what was written before a partition was first seen."


def _unprotected(config: RegionConfig) -> Iterator[str]:
    """Connections to another machine that others could read, or on which they could impersonate the server."""
    masked, _ = reference.mask(config.control_plane)
    url = secret.Url.of(masked)
    parameters = parse_qs(url.parameters.lstrip("?"))
    hosts = parameters.get("host", [url.host]) + parameters.get("hostaddr", [])  # parameters override the URL's host
    here = all(_is_here(host) for several in hosts for host in several.split(","))
    if url.before.startswith("postgres") and not here and parameters.get("sslmode") != ["verify-full"]:
        yield "control_plane: the server's certificate is not verified: add ?sslmode=verify-full&sslrootcert=FILE to the URL."
    scheme, place = location.split_endpoint(config.storage_options)
    if scheme == "http" and not (place and _is_here(place.partition("/")[0])):
        yield "storage_options: the endpoint is http: segments are sent unencrypted; write https."
    # The value of a reference is unknown here.
    servers, protocol = str(config.kafka["bootstrap.servers"]), str(config.kafka.get("security.protocol", "PLAINTEXT"))
    away = [host for host in servers.split(",") if not reference.has_reference(host)]
    if protocol.upper() == "PLAINTEXT" and not all(_is_here(host.strip().rpartition("://")[2]) for host in away):
        yield "kafka: records are sent unencrypted, and anyone who reaches the brokers can read them: write SASL_SSL or SSL."
    logins = {"sasl.oauthbearer.token.endpoint.url": str(config.kafka.get("sasl.oauthbearer.token.endpoint.url", ""))}
    if config.registry is not None and (config.registry.user or config.registry.headers or "@" in config.registry.url):
        logins["registry"] = config.registry.url
    for key, address in logins.items():
        url = secret.Url.of(reference.mask(address)[0])
        if url.before.lower() == "http://" and not _is_here(url.host):
            yield f"{key}: its login is sent unencrypted, since the address is http; write https."


def _is_here(host: str) -> bool:
    """Whether a host, with or without its port, is this machine; also an empty host, and the folder of a socket."""
    if host.startswith(("/", "@")):
        return True
    name = host.lower().partition("]")[0]
    name = name[1:] if name.startswith("[") else name if name.count(":") > 1 else name.partition(":")[0]
    if name in ("", "localhost"):
        return True
    try:
        address = ip_address(name)
    except ValueError:
        return False
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback
