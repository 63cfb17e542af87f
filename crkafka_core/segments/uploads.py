"""S3 calls that Arrow lacks: end unfinished multipart uploads, which killed processes leave and no listing shows (SPEC T3), and write a
file only under a new name.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from crkafka_core.config.location import split_endpoint
from crkafka_core.model.errors import ConfigError
from crkafka_core.segments.errors import StorageUnavailable, without_secrets


def end_uploads(bucket: str, prefix: str, options: Mapping[str, str], only: Callable[[str], bool]) -> int:
    """End unfinished uploads with this prefix and `only(key)`; their number. May be repeated."""
    client, failures = _client(options)
    ended = 0
    try:
        for page in client.get_paginator("list_multipart_uploads").paginate(Bucket=bucket, Prefix=prefix):
            for upload in page.get("Uploads", ()):
                if not only(upload["Key"]):
                    continue
                try:
                    client.abort_multipart_upload(Bucket=bucket, Key=upload["Key"], UploadId=upload["UploadId"])
                    ended += 1
                except client.exceptions.NoSuchUpload:
                    continue
    except failures as error:
        text = without_secrets(str(error))
        raise StorageUnavailable(
            f"Ending unfinished uploads in s3://{bucket}/{prefix} failed: {text}.", hint="It is tried again."
        ) from error
    return ended


def put_new(bucket: str, key: str, data: bytes, options: Mapping[str, str]) -> bool:
    """Write a small file atomically unless the name is taken; False if it is."""
    client, failures = _client(options)
    try:
        client.put_object(Bucket=bucket, Key=key, Body=data, IfNoneMatch="*")
    except failures as error:
        code = getattr(error, "response", {}).get("Error", {}).get("Code")
        if code in ("PreconditionFailed", "ConditionalRequestConflict", "412"):
            return False
        text = without_secrets(str(error))
        raise StorageUnavailable(f"Writing s3://{bucket}/{key} failed: {text}.", hint="It is tried again.") from error
    return True


def s3_endpoint(options: Mapping[str, str]) -> tuple[str, str]:
    """The endpoint's scheme and `HOST:PORT`, from the options, else from the environment variables of AWS tools."""
    named = options.get("endpoint") or os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    return split_endpoint({**options, "endpoint": named or ""})


def _client(options: Mapping[str, str]) -> tuple[Any, tuple[type[Exception], ...]]:
    try:
        from botocore.config import Config  # type: ignore[import-untyped]
        from botocore.exceptions import BotoCoreError, ClientError  # type: ignore[import-untyped]
        from botocore.session import Session  # type: ignore[import-untyped]
    except ImportError as error:
        raise ConfigError(
            "S3 needs botocore, which is not installed: Arrow can neither end unfinished uploads nor write only a new file.",
            hint="pip install 'crkafka[s3]'",
        ) from error
    scheme, place = s3_endpoint(options)
    client = Session().create_client(
        "s3",
        endpoint_url=f"{scheme or 'https'}://{place}" if place else None,
        region_name=options.get("region"),
        aws_access_key_id=options.get("access_key"),
        aws_secret_access_key=options.get("secret_key"),
        aws_session_token=options.get("session_token"),
        config=Config(connect_timeout=5, read_timeout=30, retries={"max_attempts": 2}),
    )
    return client, (BotoCoreError, ClientError)
