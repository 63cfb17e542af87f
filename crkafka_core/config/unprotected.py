"""Warnings of connections that others could read, or on which they could impersonate the server."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

from crkafka_core.config import location, reference, secret

if TYPE_CHECKING:
    from crkafka_core.config.region_config import RegionConfig

_HERE = ("localhost", "127.0.0.1", "[")


def unprotected(config: RegionConfig) -> list[str]:
    """One warning for each unprotected connection to another machine."""
    warned = []
    masked, _ = reference.mask(config.control_plane)
    url = secret.Url.of(masked)
    parameters = parse_qs(url.parameters.lstrip("?"))
    hosts = parameters.get("host", [url.host]) + parameters.get("hostaddr", [])  # parameters override the URL's host
    here = all(_is_here(host) for several in hosts for host in several.split(","))
    if url.before.startswith("postgres") and not here and parameters.get("sslmode") != ["verify-full"]:
        warned.append(
            "control_plane: the server's certificate is not verified: add ?sslmode=verify-full&sslrootcert=FILE to the URL."
        )
    in_url = {key: values[0] for key, values in parse_qs(urlsplit(config.storage).query).items()}
    options = {**config.storage_options, **in_url}
    options.setdefault("endpoint", in_url.get("endpoint_override", ""))
    scheme, place = location.split_endpoint(options)
    if scheme == "http" and not (place and _is_here(place.partition("/")[0])):
        warned.append("storage_options: the endpoint is http: segments are sent unencrypted; write https.")
    return warned + _in_clear(config)


def _in_clear(config: RegionConfig) -> list[str]:
    """Records and logins that go to another machine unencrypted. The value of a reference is unknown here."""
    warned = []
    servers, protocol = str(config.kafka["bootstrap.servers"]), str(config.kafka.get("security.protocol", "PLAINTEXT"))
    away = [host for host in servers.split(",") if not reference.has_reference(host)]
    if protocol.upper() == "PLAINTEXT" and not all(_is_here(host.strip().rpartition("://")[2]) for host in away):
        warned.append(
            "kafka: records are sent unencrypted, and anyone who reaches the brokers can read them: write SASL_SSL or SSL."
        )
    logins = {"sasl.oauthbearer.token.endpoint.url": str(config.kafka.get("sasl.oauthbearer.token.endpoint.url", ""))}
    if config.registry is not None and (config.registry.user or config.registry.headers or "@" in config.registry.url):
        logins["registry"] = config.registry.url
    for key, address in logins.items():
        url = secret.Url.of(reference.mask(address)[0])
        if url.before.lower() == "http://" and not _is_here(url.host):
            warned.append(f"{key}: its login is sent unencrypted, since the address is http; write https.")
    return warned


def _is_here(host: str) -> bool:
    """Whether a host, with or without its port, is this machine; also an empty host, and the folder of a socket."""
    return host.startswith(("/", "@")) or host.lower().partition(":")[0] in ("", *_HERE)
