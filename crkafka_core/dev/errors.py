"""Errors of an embedded service, with its log."""

from __future__ import annotations

from pathlib import Path

from crkafka_core.model.errors import ServiceUnavailable


class ServiceFailed(ServiceUnavailable):
    """A service did not start, answer or end; the message has its name, the reason, and its log with the last lines."""

    def __init__(self, service: str, what: str, *, log: Path | None = None, hint: str = "") -> None:
        parts = [f"{service}: {what}."]
        if hint:
            parts.append(hint)
        if log is not None:
            parts.append(f"Its log: {log}")
            tail = _last_lines(log)
            if tail:
                parts.append("which ends:\n" + tail)
        super().__init__(" ".join(parts))
        self.service = service
        self.log = log


def _last_lines(log: Path) -> str:
    """The end of the log without the frames of Java's stack traces."""
    try:
        text = log.read_bytes()[-20_000:].decode("utf-8", "replace")
    except OSError:
        return ""
    kept = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("at ")]
    return "\n".join("  " + line[:300] for line in kept[-8:])
