"""Functions of S3 that obstore lacks, by botocore: the credentials of a profile or role, and an end of unfinished uploads (SPEC T3)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from crkafka_core.config.location import split_endpoint
from crkafka_core.model.errors import ConfigError
from crkafka_core.segments.errors import storage_errors

try:
    from botocore.config import Config  # type: ignore[import-untyped]
    from botocore.exceptions import BotoCoreError, ClientError  # type: ignore[import-untyped]
    from botocore.session import Session  # type: ignore[import-untyped]
except ImportError as missing:
    raise ConfigError("S3 needs botocore, which is not installed.", hint="pip install 'crkafka[s3]'") from missing

if TYPE_CHECKING:
    from obstore.store import S3Credential

_KEPT = timedelta(minutes=5)
"""Time for which obstore keeps credentials; botocore renews those that end ten minutes before."""


class Environment:
    """Credentials and region of this process: variables, a profile, or a role of the machine. Asks only when they are needed."""

    def __init__(self) -> None:
        self._session = Session()
        self.region: str | None = self._session.get_config_variable("region")

    def __call__(self) -> S3Credential:
        credentials = self._session.get_credentials()
        if credentials is None:
            raise ConfigError("S3 has no credentials.", hint="Set AWS_PROFILE, or access_key in storage_options.")
        now = credentials.get_frozen_credentials()
        return {
            "access_key_id": now.access_key,
            "secret_access_key": now.secret_key,
            "token": now.token,
            "expires_at": datetime.now(UTC) + _KEPT,
        }


def end_uploads(bucket: str, prefix: str, options: Mapping[str, str], only: Callable[[str], bool]) -> int:
    """End unfinished uploads with this prefix and `only(key)`; their number. May be repeated."""
    scheme, place = split_endpoint(options)
    client = Session().create_client(
        "s3",
        endpoint_url=f"{scheme or 'https'}://{place}" if place else None,
        region_name=options.get("region"),
        aws_access_key_id=options.get("access_key"),
        aws_secret_access_key=options.get("secret_key"),
        aws_session_token=options.get("session_token"),
        config=Config(connect_timeout=5, read_timeout=30, retries={"max_attempts": 2}),
    )
    ended = 0
    with storage_errors("Ending unfinished uploads in", f"s3://{bucket}/{prefix}", (BotoCoreError, ClientError)):
        for page in client.get_paginator("list_multipart_uploads").paginate(Bucket=bucket, Prefix=prefix):
            for upload in page.get("Uploads", ()):
                if only(upload["Key"]):
                    with contextlib.suppress(client.exceptions.NoSuchUpload):
                        client.abort_multipart_upload(Bucket=bucket, Key=upload["Key"], UploadId=upload["UploadId"])
                        ended += 1
    return ended
