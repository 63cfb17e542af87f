"""UTF-8 as Kafka's Java client decodes it: what is malformed becomes U+FFFD, a surrogate counts as one and not as three."""

from __future__ import annotations

import codecs

_REPLACED = "�"


def java_text(raw: bytes) -> str:
    """The text that `new String(raw, UTF_8)` gives in Java."""
    return raw.decode("utf-8", "crkafka.java")


def _replace(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    raw, at = error.object, error.start
    if raw[at] == 0xED and 0xA0 <= (raw[at + 1] if at + 1 < len(raw) else 0) <= 0xBF:
        third = raw[at + 2] if at + 2 < len(raw) else 0
        return _REPLACED, at + (3 if 0x80 <= third <= 0xBF else 2)
    return _REPLACED, error.end


codecs.register_error("crkafka.java", _replace)
