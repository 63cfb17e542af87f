"""Errors of a storage, with the path and what to do next, never with a secret (SPEC U2)."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager

from crkafka_core.model.errors import ConfigError, CrkafkaError, ServiceUnavailable


class StorageUnavailable(ServiceUnavailable):
    """The storage is unreachable, full, or refuses. Reaction: wait and try again; never counted (SPEC X6)."""


class SegmentExists(CrkafkaError):
    """A segment of this name exists. Reaction: fail; names are unique, so two processes share an identity."""


class SegmentMissing(CrkafkaError):
    """A segment that SQL names does not exist. Reaction: a person looks; read the range from Kafka again (SPEC K3)."""


_HINTS = {
    errno.ENOSPC: "The disk is full: free some space; it is tried again.",
    errno.EDQUOT: "The quota is used up: free some space; it is tried again.",
    errno.EFBIG: "A file of this size is not allowed here (a limit of the process or of the file system).",
    errno.EACCES: "Give this user the right to write there.",
    errno.EPERM: "Give this user the right to write there.",
    errno.EROFS: "The file system is mounted read-only: mount it for writing.",
    errno.ENOTDIR: "A part of the path is a file, not a folder.",
    errno.EMFILE: "Too many open files: raise the limit (`ulimit -n`).",
}
_WORDS = (
    (re.compile(r"libjvm|libhdfs"), "HDFS needs Java and Hadoop's native client, libhdfs, on this machine."),
    (re.compile(r"ACCESS_DENIED|AccessDenied|Forbidden|403"), "Check the credentials and their rights on the bucket."),
    (re.compile(r"InvalidAccessKeyId|SignatureDoesNotMatch|UNRECOGNIZED_CLIENT|401"), "Check the credentials."),
    (re.compile(r"NO_SUCH_BUCKET|NoSuchBucket|bucket does not exist", re.I), "Create the bucket, or mend its name."),
    (
        re.compile(r"NETWORK_CONNECTION|curlCode|resolve|timed? ?out|refused", re.I),
        "Is the service up, and the endpoint right?",
    ),
)
_SECRET = re.compile(
    r"(?i)((?:access|secret)[_ ]?key(?:[_ ]?id)?|session[_ ]?token|password|signature|credential)(\s*[=:]\s*)\S+"
    r"|(//)[^/@\s]+@"
)
_BEFORE = re.compile(
    r"^.*AWS Error \w+ during \w+ operation(?: \([^)]*\))?: (?:curlCode: \d+, )?(?:[^;]*; Details: )?", re.DOTALL
)
"""Text of Arrow's S3 client before the reason."""
_PROBE = re.compile(r"/\.check-[\w-]+$")
"""A test file of `Storage.check`."""


def storage_error(error: OSError, doing: str, where: str) -> CrkafkaError:
    """The error for an OSError during `doing` ("Writing") at a path."""
    reason = error.strerror or (str(error).splitlines() or [type(error).__name__])[0]
    reason = _BEFORE.sub("", reason)[:400]
    doing, where = ("Writing to", _PROBE.sub("/", where)) if _PROBE.search(where) else (doing, where)
    hint = _HINTS.get(error.errno or 0) or next((h for w, h in _WORDS if w.search(str(error))), "It is tried again.")
    if isinstance(error, FileNotFoundError) and doing in ("Creating", "Writing to"):
        return StorageUnavailable(
            f"Nothing can be written to {without_secrets(where)}.", hint="Choose another folder for storage."
        )
    if isinstance(error, FileNotFoundError):
        return SegmentMissing(f"{without_secrets(where)} is not there.", hint="Was it deleted by hand?")
    return StorageUnavailable(f"{doing} {without_secrets(where)} failed: {without_secrets(reason)}.", hint=hint)


@contextmanager
def storage_errors(doing: str, where: str) -> Iterator[None]:
    """Raise an OSError of the block as the storage's own error."""
    try:
        yield
    except OSError as error:
        raise storage_error(error, doing, where) from error


def without_secrets(text: str) -> str:
    """The text without anything that looks like a credential."""
    return _SECRET.sub(lambda m: f"{m[3]}***@" if m[3] else f"{m[1]}{m[2]}***", text)


def first_line(error: Exception) -> str:
    """An error of a library in one line, without credentials."""
    return without_secrets((str(error).splitlines() or [type(error).__name__])[0][:400])


def refuse_credentials(url: str) -> None:
    """Refuse a URL with credentials: it is stored in SQL and shown (SPEC U2)."""
    if re.match(r"[a-zA-Z0-9+.-]+://[^/@]+:[^/@]*@", url) or re.search(
        r"(?i)[?&](access_key|secret_key|session_token)=", url
    ):
        raise ConfigError(
            f"storage: {without_secrets(url)} carries credentials.",
            hint="Put them into the environment (for S3: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY).",
        )
