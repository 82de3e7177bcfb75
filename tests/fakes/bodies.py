"""What may stand where JSON, YAML or text is expected: nothing, rubbish, bombs, and documents of another shape."""

from __future__ import annotations

DEEP = 100_000
BODIES = [
    *(b"", b" ", b"null", b"true", b"7", b"1e999", b"NaN", b'"x"', b"{", b'{"a"', b"}", b"<html>", b"\xff\xfe\x00"),
    *(b"\0", b"\xef\xbb\xbf{}", b"[]", b"[[]]", b"[null]", b"[7]", b"{}", b'{"": null}', b"x: !!int y", b"&a [*a]"),
    *(b"[" * DEEP, b'{"a":' * DEEP, b"[" * DEEP + b"]" * DEEP, b"7" * 5000, b'{"a": ' + b"7" * 5000 + b"}"),
    *(b'{"manifests": 7}', b'{"manifests": [7]}', b'{"manifests": null}', b'{"layers": null}', b'{"layers": [7]}'),
    *(b'{"config": [], "layers": [{}]}', b'{"config": null, "layers": []}', b'{"architectures": [7]}'),
    *(b'{"architectures": {"a": 1}}', b'{"auths": 7}', b'{"auths": {"r": 7}}', b'{"credHelpers": []}'),
    *(
        b'{"contexts": 7}',
        b'{"contexts": [7]}',
        b'{"contexts": [{"name": []}]}',
        b'{"current-context": {}, "users": []}',
    ),
    b'{"contexts": [{"name": "a", "context": 7}], "current-context": "a"}',
    b'{"contexts": [{"name": "a", "context": {"user": [], "cluster": {}}}], "current-context": "a"}',
    *(
        b'{"body": 7, "signature": []}',
        b'{"time": [], "source": {}}',
        b'{"prompt": 7}',
        b'{"prompt": "x", "contains": {}}',
    ),
]
