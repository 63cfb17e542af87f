"""What went wrong with an embedded service, and which log says more."""

from __future__ import annotations

from pathlib import Path

from crkafka_core.model.errors import ServiceUnavailable


class ServiceFailed(ServiceUnavailable):
    """A service did not start, answer or end; the message names it, the reason, and its log with the last lines."""

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


def _last_lines(log: Path, lines: int = 8, width: int = 300) -> str:
    """The end of the log without the frames of Java's stack traces, which would fill it."""
    try:
        text = log.read_bytes()[-20_000:].decode("utf-8", "replace")
    except OSError:
        return ""
    telling = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("at ")]
    return "\n".join("  " + line[:width] for line in telling[-lines:])
