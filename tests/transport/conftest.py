"""One broker with a listener of each kind, certificates of our own, and users."""

from __future__ import annotations

import base64
import datetime as dt
import ipaddress
import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from crkafka_core.dev.kafka import KafkaCluster
from crkafka_core.dev.leash import Leash
from crkafka_core.dev.ports import free_ports
from crkafka_core.kafka import clients
from tests.kafka.declared import declare


class Authority:
    """Signs certificates; `pem(name)` is one file with key and certificate, as Kafka and PostgreSQL take them apart."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder / name
        self.folder.mkdir()
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        certificate = self._signed(self._name, self._key.public_key(), authority=True)
        self.certificate = self._write("ca.pem", certificate.public_bytes(serialization.Encoding.PEM))

    def pair(self, name: str, *addresses: str) -> tuple[Path, Path]:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        made = self._signed(subject, key.public_key(), addresses=addresses)
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        certificate = self._write(f"{name}.crt", made.public_bytes(serialization.Encoding.PEM))
        return certificate, self._write(f"{name}.key", private)

    def _write(self, name: str, data: bytes) -> Path:
        new = self.folder / f"{name}.new"
        new.write_bytes(data)
        new.chmod(0o600)
        return new.replace(self.folder / name)

    def _signed(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePublicKey,
        *,
        addresses: tuple[str, ...] = (),
        authority: bool = False,
    ) -> x509.Certificate:
        now = dt.datetime.now(dt.UTC)
        builder = x509.CertificateBuilder().subject_name(subject).issuer_name(self._name).public_key(key)
        builder = builder.serial_number(x509.random_serial_number())
        builder = builder.not_valid_before(now - dt.timedelta(hours=1)).not_valid_after(now + dt.timedelta(days=1))
        builder = builder.add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        if addresses:
            names = [x509.IPAddress(ipaddress.ip_address(a)) if a[0].isdigit() else x509.DNSName(a) for a in addresses]
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return builder.sign(self._key, hashes.SHA256())


@dataclass
class Broker:
    """A listener for each way to connect, and what is right for it."""

    cluster: KafkaCluster
    ports: dict[str, int]
    ours: Authority
    theirs: Authority

    def properties(self, kind: str) -> dict[str, str]:
        tls = {"security.protocol": "SSL", "ssl.ca.location": str(self.ours.certificate)}
        certificate, key = str(self.ours.folder / "client.crt"), str(self.ours.folder / "client.key")
        login, token = {"sasl.username": "alice", "sasl.password": "first-word"}, "sasl.oauthbearer"
        by_token = {f"{token}.callback": "tokens", f"{token}.config": "alice"}
        return {
            "bootstrap.servers": f"127.0.0.1:{self.ports[kind]}",
            "group.id": "g",
            **{
                "TLS": tls,
                "MTLS": {**tls, "ssl.certificate.location": certificate, "ssl.key.location": key},
                "OTHERHOST": tls,
                "SCRAM": {**tls, "security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512", **login},
                "OAUTH": {**tls, "security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER", **by_token},
                "PLAIN": {},
            }[kind],
        }

    def password(self, word: str, user: str = "alice") -> None:
        scram = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        asked = self.cluster.admin.alter_user_scram_credentials(
            [UserScramCredentialUpsertion(user, scram, word.encode())]
        )
        asked[user].result(10)

    def let_read(self, user: str, kind: ResourceType, name: str) -> None:
        """An ACL; `alice`, and whoever has no name or a certificate, need none."""
        who = f"User:{user}", "*", AclOperation.READ, AclPermissionType.ALLOW
        acl = AclBinding(kind, name, ResourcePatternType.LITERAL, *who)
        (asked,) = self.cluster.admin.create_acls([acl]).values()
        asked.result(10)


TOKENS: list[str] = []


def token(config: str) -> tuple[str, float]:
    """A token as the broker's unsecured validator takes it."""
    end = time.time() + 5

    def part(value: object) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    TOKENS.append(f"{part({'alg': 'none'})}.{part({'sub': config, 'iat': time.time() - 5, 'exp': end})}.")
    return TOKENS[-1], end


def no_token(config: str) -> tuple[str, float]:
    raise PermissionError("the identity provider is closed")


@pytest.fixture(autouse=True, scope="session")
def functions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What gives tokens here, or does not, as an installed package declares it."""
    here = "tests.transport.conftest"
    with pytest.MonkeyPatch.context() as patch:
        declare(
            tmp_path_factory.mktemp("package"),
            patch,
            clients.TOKENS,
            tokens=f"{here}:token",
            no_token=f"{here}:no_token",
            nothing=f"{here}:nothing",
            elsewhere="no.such.package:token",
            no_function=f"{here}:TOKENS",
        )
        yield


@pytest.fixture(scope="session")
def broker(services_folder: Path) -> Iterator[Broker]:
    folder = services_folder / "tls"
    folder.mkdir()
    ours, theirs = Authority(folder, "ours"), Authority(folder, "theirs")
    ours.pair("client")
    theirs.pair("client")
    stores = {}
    for name, address in (("here", ("127.0.0.1", "localhost")), ("elsewhere", ("kafka.example.com",))):
        certificate, key = ours.pair(name, *address)
        stores[name] = certificate.with_suffix(".pem")
        stores[name].write_bytes(key.read_bytes() + certificate.read_bytes())
    names = ("TLS", "MTLS", "OTHERHOST", "SCRAM", "OAUTH")
    ports = dict(zip(names, free_ports(len(names)), strict=True))
    kinds = {"SCRAM": "SASL_SSL", "OAUTH": "SASL_SSL"}
    listeners = "".join(f",{name}://127.0.0.1:{port}" for name, port in ports.items())
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}" + listeners,
        "advertised.listeners": "PLAINTEXT://127.0.0.1:{port}" + listeners,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT"
        + "".join(f",{name}:{kinds.get(name, 'SSL')}" for name in names),
        "connections.max.reauth.ms": "3000",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS;User:alice;User:CN=client",
    }
    module = "org.apache.kafka.common.security"
    for name in names:
        store = stores["elsewhere" if name == "OTHERHOST" else "here"]
        at = f"listener.name.{name.lower()}"
        settings |= {f"{at}.ssl.keystore.type": "PEM", f"{at}.ssl.keystore.location": str(store)}
    settings |= {
        "listener.name.mtls.ssl.client.auth": "required",
        "listener.name.mtls.ssl.truststore.type": "PEM",
        "listener.name.mtls.ssl.truststore.location": str(ours.certificate),
        "listener.name.scram.sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "listener.name.scram.scram-sha-512.sasl.jaas.config": f"{module}.scram.ScramLoginModule required;",
        "listener.name.oauth.sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.oauth.oauthbearer.sasl.jaas.config": f"{module}.oauthbearer.OAuthBearerLoginModule required"
        ' unsecuredLoginStringClaim_sub="broker";',
    }
    leash = Leash(folder / "kafka", remove=not os.environ.get("CRKAFKA_KEEP_SERVICES"))
    cluster = KafkaCluster(folder / "kafka", leash=leash, settings=settings)
    try:
        cluster.start()
        made = Broker(cluster, {**ports, "PLAIN": int(cluster.bootstrap.rpartition(":")[2])}, ours, theirs)
        made.password("first-word")
        cluster.topics.create("orders", 1)
        yield made
    finally:
        leash.release()
