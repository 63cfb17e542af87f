"""A secret is in a configuration as one whole reference or not at all, wherever it is written (SPEC U2)."""

from __future__ import annotations

import io
import logging
import re
from pathlib import Path
from typing import Any

import pytest

from crkafka_core import logs
from crkafka_core.config import BadConfiguration, RegionConfig, redact
from crkafka_core.config.resolving import install, remember, remember_token, resolve
from crkafka_core.model import redaction
from crkafka_core.model.errors import ConfigError, ServiceUnavailable

CLEAR = "hunter2"
MINIMAL: dict[str, Any] = {
    "region": "orders",
    "control_plane": "sqlite:///crkafka.db",
    "storage": "segments",
    "kafka": {"bootstrap.servers": "localhost:9092", "group.id": "orders"},
    "topics": ["orders"],
}


def _kafka(**properties: Any) -> dict[str, Any]:
    return {"kafka": {**MINIMAL["kafka"], **{k.replace("_", "."): v for k, v in properties.items()}}}


def _table(**keys: Any) -> dict[str, Any]:
    return {"tables": [{"name": "t", "format": "delta", "path": "t", **keys}]}


def _spark(master: str = "local[2]", **conf: str) -> dict[str, Any]:
    return {"host": {"spark": master, "conf": conf}}


@pytest.mark.parametrize(
    "written",
    [
        {"control_plane": "postgresql+psycopg://u:hunter2@h/db"},
        {"control_plane": "postgresql+psycopg://u:pa/hunter2@h/db"},
        {"control_plane": "postgresql+psycopg://u:pa?hunter2@h/db"},
        {"control_plane": "postgresql+psycopg://:hunter2@h/db"},
        {"control_plane": "postgresql+psycopg://h/db?user=u&password=hunter2"},
        {"control_plane": "postgresql+psycopg://h/db?sslpassword=hunter2"},
        {"control_plane": "postgresql+psycopg://u:${env:X:hunter2}@h/db"},
        {"control_plane": "postgresql+psycopg://u:${env:X}hunter2@h/db"},
        {"control_plane": "${env:URL:postgresql+psycopg://u:hunter2@h/db}"},
        {"control_plane": "u:hunter2@h/db"},
        {"control_plane": "postgresql+psycopg://${env:A:u:hunter2}@h/db"},
        {"control_plane": "postgresql+psycopg://${env:A:u:hunter2@h}/db"},
        {"control_plane": "postgresql+psycopg://${env:A:u:hunter2@h:5432}/db?sslmode=verify-full"},
        {"control_plane": "postgresql+psycopg://h${env:A:/db?password=hunter2}"},
        {"control_plane": "${env:A:postgresql+psycopg}://u:${env:B:hunter2}@h/db"},
        {"storage": "s3://${env:A:key:hunter2@bucket}/p"},
        _kafka(bootstrap_servers="u:hunter2@h:9092"),
        {"control_plane": "postgresql+psycopg://h/db?p%61ssword=hunter2"},
        {"control_plane": "postgresql+psycopg://h/db?options=-c%20password%3Dhunter2"},
        {"control_plane": "postgresql+psycopg://h/db#password=hunter2"},
        {"storage": "s3://bucket/p#secret_key=hunter2"},
        {"storage": "abfss://c@a.dfs.core.windows.net/p?sv=1&sig=hunter2"},
        {"storage_options": {"client_kwargs": '{"aws_secret_access_key": "hunter2"}'}},
        {"registry": {"url": "https://h", "headers": {"Cookie": "session=hunter2"}}},
        {"storage": "s3://bucket/p?secret_key=hunter2"},
        {"storage": "s3://bucket/p?access_key=a&secret_key=hunter2"},
        {"storage": "s3://key:hunter2@bucket/p"},
        {"storage_options": {"secret_key": "hunter2"}},
        {"storage_options": {"secret_key": "${env:X:hunter2}"}},
        {"storage_options": {"secret_key": "hunter2${env:X}"}},
        {"storage_options": {"session_token": "hunter2"}},
        {"storage_options": {"fs.azure.account.key.x.blob.core.windows.net": "hunter2"}},
        {"storage_options": {"account_key": "hunter2"}},
        {"storage_options": {"service_account_key": '{"private_key": "hunter2"}'}},
        {"storage_options": {"connection_string": "DefaultEndpointsProtocol=https;AccountKey=hunter2"}},
        {"storage_options": {"endpoint": "https://u:hunter2@h"}},
        _kafka(sasl_password=CLEAR),
        _kafka(sasl_password="${env:X:hunter2}"),
        _kafka(sasl_password="${env:X}${env:hunter2}"),
        _kafka(sasl_oauthbearer_config="scope=a,clientSecret=hunter2"),
        _kafka(sasl_oauthbearer_token_endpoint_url="https://u:hunter2@h/token"),
        _table(path="s3://key:hunter2@bucket/t"),
        _table(path="s3://bucket/t?secret_key=hunter2"),
        _spark("sc://h:15002/;token=hunter2"),
        _spark("sc://h:15002/;user_id=me;token=${env:X:hunter2}"),
        _spark("sc:/h:15002/;token=hunter2"),
        _spark(**{"spark.hadoop.fs.s3a.secret.key": CLEAR}),
        _spark(**{"spark.hadoop.fs.azure.account.key.x": CLEAR}),
        _spark(**{"spark.hadoop.fs.azure.sas.c.a": CLEAR}),
        _spark(**{"spark.executorEnv.DB_PASSWORD": "${env:X:hunter2}"}),
        _spark(**{"spark.executorEnv.PGPASS": CLEAR}),
        _spark(**{"spark.jars.repositories": "https://u:hunter2@repo/m2"}),
        _spark(**{"spark.jars.repositories": "https://a/m2,https://u:hunter2@repo/m2"}),
        _spark(**{"spark.sql.catalog.c.uri": "jdbc:oracle:thin:u/hunter2@//h:1521/x"}),
        _spark(**{"spark.hadoop.fs.s3a.encryption.key": CLEAR}),
        _spark(**{"spark.hadoop.parquet.encryption.key.list": "k1:hunter2"}),
        _spark(**{"spark.any": "Authorization: Bearer hunter2"}),
        _kafka(sasl_oauthbearer_config="clientSecret: hunter2"),
        _kafka(ssl_certificate_pem="-----BEGIN PRIVATE KEY-----\nhunter2\n-----END PRIVATE KEY-----"),
        {"storage_options": {"azure_storage_key": CLEAR}},
        {"registry": {"url": "https://h", "headers": {"X-Auth": CLEAR}}},
        {"registry": {"url": "https://h", "user": "${env:X:me:hunter2}"}},
        {"control_plane": "postgresql+psycopg://h/db?options=-c%20password%20%3D%20hunter2"},
        _spark(**{"spark.driver.extraJavaOptions": "-Xss4m -Djavax.net.ssl.trustStorePassword=hunter2"}),
    ],
    ids=str,
)
def test_a_secret_in_clear_is_refused_and_not_repeated(written: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(BadConfiguration) as refused:
        RegionConfig.parse({**MINIMAL, **written}, base=tmp_path)
    assert CLEAR not in str(refused.value)


@pytest.mark.parametrize(
    "line",
    [
        "kafka: {sasl.password: *hunter2}",
        "kafka: {sasl.password: !hunter2 x}",
        "storage_options: {below: {pwd: hunter2}}",
        "storage_options: sas=hunter2",
        "registry: [https://h, 'u:hunter2']",
        "host: {spark: 'foo://h;pwd=hunter2'}",
        "host: 'sc://h/;x-sas=hunter2'",
    ],
)
def test_nor_is_one_that_stands_where_nothing_of_its_kind_belongs(line: str, tmp_path: Path) -> None:
    (tmp_path / "region.yaml").write_text(f"region: r\n{line}\n")
    with pytest.raises(BadConfiguration) as refused:
        RegionConfig.load(tmp_path / "region.yaml")
    assert CLEAR not in str(refused.value)
    assert f"region.yaml:2: {line.partition(':')[0]}" in str(refused.value) or "needs quotation marks" in str(
        refused.value
    )


def test_what_looks_like_a_masked_reference_is_refused(tmp_path: Path) -> None:
    """It would stand for a reference elsewhere in the text."""
    with pytest.raises(BadConfiguration, match="private area"):
        RegionConfig.parse({**MINIMAL, "storage": "s3://bucket/\ue000"}, base=tmp_path)


def test_a_number_is_a_secret_in_clear_too(tmp_path: Path) -> None:
    with pytest.raises(BadConfiguration, match=r"sasl\.password: is a secret written in clear"):
        RegionConfig.parse({**MINIMAL, **_kafka(sasl_password=77886655)}, base=tmp_path)


@pytest.mark.parametrize(
    "written",
    [
        {"storage": "s3://bucket/p?secret_key=${env:X}"},
        _table(path="s3://bucket/t?secret_key=${env:X}"),
        _spark(**{"spark.executor.extraJavaOptions": "-DtrustStorePassword=${env:X}"}),
    ],
    ids=str,
)
def test_not_even_a_reference_to_a_secret_where_sql_or_a_command_line_would_hold_it(
    written: dict[str, Any], tmp_path: Path
) -> None:
    with pytest.raises(BadConfiguration, match=r"which SQL keeps|becomes a command line"):
        RegionConfig.parse({**MINIMAL, **written}, base=tmp_path)


@pytest.mark.parametrize(
    "written",
    [
        {"control_plane": "${env:URL}"},
        {"control_plane": "${env:URL:sqlite:///a.db}"},
        {"control_plane": "postgresql+psycopg://${env:U:me}:${file:/run/pw}@${env:H:db}/crkafka?application_name=x@y"},
        {"control_plane": "postgresql+psycopg://h/db?password=${env:X}&sslmode=verify-full"},
        {"storage": "s3://bucket/a@b/token=3"},
        _kafka(bootstrap_servers="${env:BROKERS:localhost:9092}", sasl_password="${env:X}"),
        _kafka(sasl_oauthbearer_config="scope=a,clientSecret=${env:X}"),
        _spark("sc://localhost:15002/;token=${env:X}"),
        _spark("sc://localhost:15002/;user_id=me@home.example;token=${env:X}"),
        _spark(**{"spark.hadoop.fs.s3a.secret.key": "${file:/run/s3}", "spark.executor.memory": "2g"}),
        {"storage": "s3://bucket/design=3/sigma#4"},
        _spark(**{"spark.shuffle.sort.bypassMergeThreshold": "200", "spark.x.bypass": "true"}),
        _spark(**{"spark.jars.repositories": "https://a/m2,https://u:${env:X}@repo/m2"}),
        _spark(**{"spark.hadoop.fs.s3a.encryption.key": "arn:aws:kms:eu-west-1:1:key/a"}),
        _spark(**{"spark.hadoop.parquet.encryption.key.material.store.internally": "true"}),
        _kafka(ssl_providers="default, legacy"),
    ],
    ids=str,
)
def test_references_are_taken(written: dict[str, Any], tmp_path: Path) -> None:
    RegionConfig.parse({**MINIMAL, **written}, base=tmp_path)


@pytest.mark.parametrize(
    "written",
    [
        {"storage_options": {"endpoint": "https://u:${env:P}@h"}},
        {"storage_options": {"endpoint": "https://${env:E:u@h}"}},
        _spark("spark://u:${env:P}@h:7077"),
        _spark("sc://u:${env:P}@localhost:15002"),
    ],
    ids=str,
)
def test_a_login_is_refused_where_it_would_become_a_part_of_a_host_name(
    written: dict[str, Any], tmp_path: Path
) -> None:
    with pytest.raises(BadConfiguration, match="in front of the host, where this address takes none"):
        RegionConfig.parse({**MINIMAL, **written}, base=tmp_path)


def test_a_password_in_a_url_is_quoted_so_that_its_characters_stay_its_own() -> None:
    url = "postgresql+psycopg://${env:U}:${env:P}@${env:H}/db?sslpassword=${env:P}&user=x"
    env = {"U": "me@home", "P": "p@ss/w:rd?#%41", "H": "db:5432"}
    said = resolve(url, "control_plane", env)
    quoted = "p%40ss%2Fw%3Ard%3F%23%2541"
    assert said == f"postgresql+psycopg://me%40home:{quoted}@db:5432/db?sslpassword={quoted}&user=x"
    assert resolve("sc://h:15002/;token=${env:P}", "host.spark", env) == f"sc://h:15002/;token={quoted}"
    urls = "https://a/m2,https://u:${env:P}@b/m2, https://u:${env:P}@${env:H}/m2"
    said = resolve(urls, "host.conf.spark.jars.repositories", env)
    assert said == f"https://a/m2,https://u:{quoted}@b/m2, https://u:{quoted}@db:5432/m2"


@pytest.mark.parametrize("env", [{"H": "u:geheim-1@db"}, {"H": "db/other"}, {"H": "db?password=geheim-2"}])
def test_a_host_that_would_end_itself_is_refused_unseen(env: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"\$\{env:H\} is in the place of a URL's host") as refused:
        resolve("postgresql+psycopg://${env:H}/db", "control_plane", env)
    assert "geheim" not in str(refused.value)


def test_a_whole_url_with_an_unquoted_at_sign_never_becomes_a_host_name() -> None:
    with pytest.raises(ConfigError, match="not percent-quoted") as refused:
        resolve("${env:URL}", "control_plane", {"URL": "postgresql+psycopg://u:geheim@teil@db/x"})
    with pytest.raises(ConfigError, match="not percent-quoted"):
        resolve("${env:URLS}", "registry.url", {"URLS": "https://a,https://u:geheim@teil@db/x"})
    assert "teil" not in str(refused.value)
    assert redact("could not resolve host geheim@teil") == "could not resolve host ***"


@pytest.mark.parametrize(
    ("key", "written", "value"),
    [
        ("control_plane", "postgresql+psycopg://u:${env:X}@h/db", "can@ry/1"),
        ("control_plane", "${env:X}", "postgresql+psycopg://u:canary-2@h/db"),
        ("control_plane", "${env:X}", "postgresql+psycopg://h/db?password=canary-3"),
        ("host.spark", "sc://h/;token=${env:X}", "canary+4"),
        ("host.conf.spark.jars.repositories", "https://a/m2,https://u:${env:X}@h/m2", "canary-6"),
        ("storage_options.secret_key", "${env:X}", 'can"ary\\5'),
    ],
)
def test_what_was_resolved_is_redacted_by_value_in_each_form(key: str, written: str, value: str) -> None:
    from json import dumps
    from urllib.parse import quote, quote_plus

    resolve(written, key, {"X": value})
    secret = value.rpartition(":")[2].removesuffix("@h/db") if "canary-2" in value else value.rpartition("=")[2]
    for form in (secret, quote(secret, safe=""), quote_plus(secret), dumps(secret), repr(secret)):
        assert "***" in redact(f"it said {form} there")
        assert secret not in redact(f"it said {form} there")


class _WritesErrorsAnew(logging.Formatter):
    """As those of other libraries do."""

    def format(self, record: logging.LogRecord) -> str:
        error = self.formatException(record.exc_info) if record.exc_info else record.exc_text or ""
        return f"{record.getMessage()}\n{error}"


@pytest.mark.parametrize("formatter", [None, _WritesErrorsAnew(), logs._Json("m")], ids=["text", "another", "json"])
def test_no_handler_of_any_library_sees_a_secret(formatter: logging.Formatter | None) -> None:
    remember("canary-in-logs")
    seen = io.StringIO()
    handler = logging.StreamHandler(seen)
    handler.setFormatter(formatter)
    logger = logging.getLogger("somebody.elses")
    logger.addHandler(handler)
    try:
        logger.warning("with %s and %d", "canary-in-logs", 7)
        logger.warning("canary-in-logs")
        try:
            raise RuntimeError("could not connect with canary-in-logs")
        except RuntimeError:
            logger.exception("failed")
    finally:
        logger.removeHandler(handler)
    assert "canary" not in seen.getvalue()
    assert "with *** and 7" in seen.getvalue()
    assert "RuntimeError: could not connect with ***" in seen.getvalue()


def test_tokens_that_follow_each_other_for_months_are_not_all_remembered() -> None:
    remember("canary-password")
    remember_token("canary-token-0")
    before = len(redaction._known)
    for number in range(1_000):
        remember_token(f"canary-token-{number}+/=")
    assert len(redaction._known) < before + 5 * 101
    assert redact("canary-password canary-token-999+/= canary-token-950+/=") == "*** *** ***"


def test_a_secret_may_be_remembered_while_another_thread_writes_a_log() -> None:
    class Text(str):
        def __contains__(self, part: object) -> bool:
            remember(f"canary-{len(redaction._known)}")  # as another thread would, in the midst of it
            return False

    remember("canary-first")
    assert redact(Text("a text")) == "a text"


def test_records_are_made_by_one_factory_however_often_secrets_are_resolved() -> None:
    install()
    before = logging.getLogRecordFactory()
    remember("canary-once-more")
    assert logging.getLogRecordFactory() is before


def test_an_error_that_quotes_what_we_gave_it_shows_nothing() -> None:
    remember("canary-in-error")
    error = ServiceUnavailable("The database said: no user canary-in-error.", hint="Try.")
    assert str(error) == "The database said: no user ***. Try."
    assert "canary" not in repr(error) + error.message + "".join(map(str, error.args))


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"kafka": {"security.protocol": "SASL_PLAINTEXT"}}, "sends the login and all records unencrypted"),
        ({"kafka": {"security.protocol": "SSL", "enable.ssl.certificate.verification": False}}, "verification is off"),
        ({"kafka": {"ssl.endpoint.identification.algorithm": "none"}}, "any certificate of that authority"),
        ({"control_plane": "postgresql://u:${env:P}@db.internal/x"}, r"add \?sslmode=verify-full"),
        ({"control_plane": "postgresql://u:${env:P}@db.internal/x?sslmode=require"}, r"add \?sslmode=verify-full"),
        (
            {"control_plane": "postgresql+psycopg://u:${env:P}@/x?host=db1:5432&host=db2:5432"},
            r"add \?sslmode=verify-full",
        ),
        (
            {"control_plane": "postgresql+psycopg://u:${env:P}@/x?host=localhost,db2.internal"},
            r"add \?sslmode=verify-full",
        ),
        ({"control_plane": "postgresql+psycopg://u:${env:P}@/x?host=db1.internal"}, r"add \?sslmode=verify-full"),
        ({"control_plane": "postgresql://u@localhost/x?hostaddr=10.0.0.1"}, r"add \?sslmode=verify-full"),
        ({"storage_options": {"endpoint": "http://minio.internal:9000"}}, "the endpoint is http"),
        ({"storage_options": {"endpoint": "HTTP://minio.internal:9000"}}, "the endpoint is http"),
        ({"storage_options": {"endpoint": "minio:9000", "scheme": "http"}}, "the endpoint is http"),
        ({"storage_options": {"endpoint": "http://localhost:9000"}}, ""),
        ({"storage_options": {"endpoint": "127.0.0.1:9000", "scheme": "http"}}, ""),
        ({"storage_options": {"endpoint": "https://minio.internal:9000"}}, ""),
        ({"storage_options": {"endpoint": "minio:9000", "scheme": "https"}}, ""),
        ({"control_plane": "postgresql://u:${env:P}@/x?host=db1:5432&host=db2:5432&sslmode=verify-full"}, ""),
        ({"control_plane": "postgresql://u:${env:P}@db.internal/x?sslmode=verify-full"}, ""),
        ({"control_plane": "postgresql://u@localhost/x"}, ""),
        ({"control_plane": "postgresql://u@/x?host=/run/postgresql"}, ""),
        ({"control_plane": "postgresql://u@/x?host=%2Frun%2Fpostgresql"}, ""),
        ({"control_plane": "postgresql://u@/x"}, ""),
        ({"kafka": {"security.protocol": "SASL_SSL"}}, ""),
        ({"kafka": {"bootstrap.servers": "localhost:1, b:1"}}, "records are sent unencrypted"),
        ({"kafka": {"bootstrap.servers": "PLAINTEXT://127.0.0.1:1"}}, ""),
        ({"kafka": {"bootstrap.servers": "[::1]:9092,[::ffff:127.0.0.1]:9092"}}, ""),
        ({"kafka": {"bootstrap.servers": "[::ffff:10.0.0.1]:9092"}}, "records are sent unencrypted"),
        ({"kafka": {"bootstrap.servers": "[2001:db8::1]:9092"}}, "records are sent unencrypted"),
        ({"kafka": {"bootstrap.servers": "b:1", "security.protocol": "SSL"}}, ""),
        ({"kafka": {"bootstrap.servers": "${env:BROKERS}"}}, ""),
        (
            {"registry": {"url": "http://r.internal:8081", "user": "${env:L}"}},
            "registry: its login is sent unencrypted",
        ),
        ({"registry": {"url": "http://${env:L}@r.internal:8081"}}, "registry: its login is sent unencrypted"),
        ({"registry": {"url": "http://r.internal:8081"}}, ""),
        ({"registry": {"url": "http://localhost:8081", "user": "${env:L}"}}, ""),
        (
            {
                "kafka": {
                    "security.protocol": "SASL_SSL",
                    "sasl.mechanism": "OAUTHBEARER",
                    "sasl.oauthbearer.method": "oidc",
                    "sasl.oauthbearer.token.endpoint.url": "http://login.internal/token",
                }
            },
            "token.endpoint.url: its login is sent unencrypted",
        ),
    ],
)
def test_connections_that_others_could_read_or_answer_are_warned_of(keys: dict[str, object], said: str) -> None:
    given = {"region": "r", "control_plane": "sqlite:///x.db", "storage": "s", "topics": ["t"], **keys}
    kafka = keys.get("kafka", {})
    assert isinstance(kafka, dict)
    config = RegionConfig.of(**{**given, "kafka": {"bootstrap.servers": "localhost:1", "group.id": "g", **kafka}})
    found = " ".join(config.warnings())
    assert re.search(said, found) if said else not found


def test_tokens_need_a_function_or_oidc() -> None:
    kafka = {"bootstrap.servers": "b:1", "group.id": "g", "sasl.mechanism": "OAUTHBEARER"}
    keys = {"region": "r", "control_plane": "sqlite:///x.db", "storage": "s", "topics": ["t"]}
    with pytest.raises(BadConfiguration, match=r"oauthbearer\.callback: is missing: it names a function"):
        RegionConfig.of(**keys, kafka=kafka)
    RegionConfig.of(**keys, kafka={**kafka, "sasl.oauthbearer.callback": "company-tokens"})
    RegionConfig.of(**keys, kafka={**kafka, "sasl.oauthbearer.method": "oidc"})
