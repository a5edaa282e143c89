# SPDX-License-Identifier: Apache-2.0
"""Recorded etcd data: reading, errors, and which keys fit."""

import base64
import json

import pytest

from experiments import etcd_data
from experiments.etcd_data import DataError, Entry


def encoded(text):
    return base64.b64encode(text.encode()).decode()


def export(tmp_path, *pairs, **more):
    path = tmp_path / "export.json"
    path.write_text(json.dumps({"header": {}, "kvs": list(pairs), **more}))
    return path


def test_the_shipped_export_and_trace_are_what_the_readme_says():
    entries = etcd_data.read_export()
    requests = etcd_data.read_trace()
    assert len(entries) == 284
    assert sum(request.kind == "get" for request in requests) == 658
    assert sum(request.kind == "txn-put" for request in requests) == 704
    readme = (etcd_data.DATA / "README.md").read_text()
    for bits in (128, 1024, 4096, 8192):
        placed, _ = etcd_data.fit(entries, bits // 8)
        keys = {entry.key for entry in placed}
        gets, puts = (
            sum(request.kind == kind and request.key in keys for request in requests) for kind in ("get", "txn-put")
        )
        assert f"| {bits} | {bits // 8:,} | {len(placed)} | {gets} | {puts} |" in readme


def test_what_does_not_fit_says_why():
    entries = [
        Entry("/a", b"x" * 16),
        Entry("/b", b"x" * 17),
        Entry("/c", b"x" * 400),
        Entry("/d", b"", lease=7),
        Entry("/e", b""),
    ]
    placed, left = etcd_data.fit(entries, 16, slots=1)
    assert [entry.key for entry in placed] == ["/a"]
    assert etcd_data.reasons(left) == [
        "2 larger than 16 bytes (17 to 400)",
        "1 on a TTL lease: etcd can remove it by itself",
        "1 no slot: 1 are taken",
    ]


def test_an_empty_value_is_left_out_by_etcdctl_and_read_as_empty(tmp_path):
    assert etcd_data.read_export(export(tmp_path, {"key": encoded("/a")})) == [Entry("/a", b"")]


@pytest.mark.parametrize(
    ("pairs", "words"),
    [
        ([{"value": "eA=="}], 'kvs[0]: has no "key"'),
        ([{"key": "not base64!"}], "kvs[0].key: not base64"),
        ([{"key": encoded("/a"), "value": 7}], "kvs[0].value: not base64"),
        ([{"key": base64.b64encode(b"\xff\xfe").decode()}], "is not UTF-8"),
        ([{"key": encoded("/a")}, {"key": encoded("/a")}], "kvs[1]: /a is there twice"),
        ([{"key": encoded("/a"), "lease": "7"}], "kvs[0]: the lease must be a number"),
        (["/a"], 'kvs[0]: has no "key"'),
    ],
)
def test_a_bad_entry_is_refused_with_its_place(tmp_path, pairs, words):
    with pytest.raises(DataError) as refusal:
        etcd_data.read_export(export(tmp_path, *pairs))
    assert words in str(refusal.value)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"{}", 'has no list "kvs"'),
        (b"[]", 'has no list "kvs"'),
        (b"/registry/a\nvalue\n", "line 1, column 1: not JSON"),
        (b"\x00\xff", "not text"),
    ],
)
def test_a_file_that_is_no_export_is_refused(tmp_path, content, words):
    path = tmp_path / "export.json"
    path.write_bytes(content)
    with pytest.raises(DataError) as refusal:
        etcd_data.read_export(path)
    assert words in str(refusal.value)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(DataError, match=r"gone\.json: No such file"):
        etcd_data.read_export(tmp_path / "gone.json")


def test_a_bad_trace_is_refused_with_its_line(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text("seconds,kind,key\n0.1,get,/a\nsoon,get,/b\n")
    with pytest.raises(DataError, match="line 3: 'soon' is no number of seconds"):
        etcd_data.read_trace(path)
    path.write_text("kind,key\nget,/a\n")
    with pytest.raises(DataError, match="has no column seconds"):
        etcd_data.read_trace(path)


def test_placing_says_what_the_controller_refused():
    class Admin:
        def add_keys(self, chain, keys):
            assert chain == "main"
            return [
                {"error": {"message": "no slot left"}} if name == "/b" else {"keyId": 0x01000000 + len(value)}
                for name, value in keys.items()
            ]

    entries = [Entry("/a", b"1"), Entry("/b", b"22"), Entry("/c", b"333")]
    ids, refused = etcd_data.place(Admin(), "main", entries, batch=2)
    assert ids == {"/a": 0x01000001, "/c": 0x01000003}
    assert [(left.entry.key, left.reason) for left in refused] == [("/b", "no slot left")]
