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
_NO_BUCKET = "NoSuchBucket|ContainerNotFound"
_NO_FILE = re.compile(f"NoSuchUpload|{_NO_BUCKET}")
"""Codes of missing things other than files, for which obstore raises Python's error for a missing file."""
_WORDS = {
    "libjvm|libhdfs": "HDFS needs Java and Hadoop's native client, libhdfs, on this machine.",
    "AccessDenied|AuthorizationFailure|Forbidden": "Check the credentials and their rights on the bucket.",
    "InvalidAccessKeyId|SignatureDoesNotMatch|AuthenticationFailed|Unauthorized|no credentials|Unable to locate cred": (
        "Check the credentials."
    ),
    "token request": (
        "Set service_account_key in storage_options, or GOOGLE_APPLICATION_CREDENTIALS, or give this machine a service account."
    ),
    _NO_BUCKET: "Create the bucket, or mend its name.",
    "(?i)redirect": "Set the bucket's region in storage_options.",
    "(?i)resolve|lookup|timed? ?out|refused|sending request": "Is the service up, and the endpoint right?",
}
_SECRET = re.compile(
    r"(?i)((?:access|secret)[_ ]?key(?:[_ ]?id)?|session[_ ]?token|password|signature|credential)(\s*[=:]\s*)\S+"
    r"|(//)[^/@\s]+@(?!\w+\.dfs\.)"
)
_OF_LIBRARY = (
    re.compile(r"GCS error: ()(Error performing token request: Error performing \w+ [^\s?]+)"),
    re.compile(r"<Code>(\w+)</Code>\s*<Message>([^<\n]*)"),
    re.compile(r"status code: ()(\d+ [\w ]+)"),
    re.compile(r'message: ()"([^"]+)"'),  # of the system, such as a refused connection
    re.compile(r"\A.*credential provider: \w+: ()(.*)"),
    re.compile(r"\A.* - ()(.*)"),
)
"""Matches the reason in a text of obstore."""
_PROBE = re.compile(r"/\.check-[\w-]+$")
"""A test file of `Storage.check`."""


def storage_error(error: Exception, doing: str, where: str) -> CrkafkaError:
    """The error for a file system's or library's own during `doing` ("Writing") at a path."""
    reason, number = _reason(error), getattr(error, "errno", None)
    doing, where = ("Writing to", _PROBE.sub("/", where)) if _PROBE.search(where) else (doing, where)
    where = without_secrets(where)
    if isinstance(error, FileNotFoundError) and not _NO_FILE.search(reason):
        if doing in ("Creating", "Writing to"):
            return StorageUnavailable(f"Nothing can be written to {where}.", hint="Choose another folder for storage.")
        return SegmentMissing(f"{where} is not there.", hint="Was it deleted by hand?")
    hint = _HINTS.get(number or 0) or next(
        (h for words, h in _WORDS.items() if re.search(words, reason)), "It is tried again."
    )
    return StorageUnavailable(f"{doing} {where} failed: {without_secrets(reason)}.", hint=hint)


def _reason(error: Exception) -> str:
    """The reason in one line, without a library's words around it."""
    text = str(error)
    if strerror := getattr(error, "strerror", None):
        return str(strerror)
    for pattern in _OF_LIBRARY:
        if match := pattern.search(text):
            code, reason = match.groups()
            return f"{reason.rstrip('. ')}{code and f' ({code})'}"
    return (text.splitlines() or [type(error).__name__])[0][:400]


@contextmanager
def storage_errors(doing: str, where: str, kinds: tuple[type[Exception], ...] = (OSError,)) -> Iterator[None]:
    """Raise errors of the block as the storage's own."""
    try:
        yield
    except kinds as error:
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
