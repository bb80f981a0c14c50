"""The local review server: token, host, merging of several windows, and what reaches the disk."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from mslg.data.open import open_named
from mslg.review.decisions import read_checked_decisions
from mslg.review.serve import server_of
from mslg.review.server import ReviewServer
from mslg.review.start import write_start
from tests.support import trees
from tests.support.run_folders import run_folder


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ReviewServer]:
    trees.image_folder(tmp_path / "photos", each=4)
    write_start(open_named(str(tmp_path / "photos")).train, "photos", tmp_path / "check")
    made = server_of(tmp_path / "check")
    thread = threading.Thread(target=made.serve_forever, daemon=True)
    thread.start()
    yield made
    made.shut_down()
    thread.join(timeout=10)
    assert not thread.is_alive()


def ask(server: ReviewServer, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, bytes]:
    connection = HTTPConnection("127.0.0.1", server.port, timeout=5)
    content = body if isinstance(body, str) or body is None else json.dumps(body)
    connection.request(method, path, content, headers)
    answer = connection.getresponse()
    return answer.status, answer.read()


def post(server: ReviewServer, rows: Any) -> tuple[int, bytes]:
    return ask(server, "POST", "/decisions", rows, **{"X-Token": server.token})


def test_the_page_needs_the_token_and_this_address(server: ReviewServer) -> None:
    status, page = ask(server, "GET", f"/?token={server.token}")
    assert status == 200
    assert b"connect-src &#39;self&#39;" in page
    assert server.token.encode() in page
    assert ask(server, "GET", "/")[0] == 403
    assert ask(server, "GET", "/?token=guess")[0] == 403
    assert ask(server, "GET", f"/?token={server.token}", Host="evil.example")[0] == 403
    assert ask(server, "GET", "/decisions")[0] == 403
    assert ask(server, "POST", "/decisions", [])[0] == 403
    assert ask(server, "GET", f"/../start.json?token={server.token}")[0] == 403
    assert ask(server, "GET", f"/start.json?token={server.token}", **{"X-Token": server.token})[0] == 404
    assert ask(server, "DELETE", "/decisions", **{"X-Token": server.token})[0] == 404
    assert server.address.startswith("http://127.0.0.1:")


def test_a_request_larger_than_any_review_is_refused(server: ReviewServer) -> None:
    headers = {"X-Token": server.token, "Content-Length": str(16 * 2**20 + 1)}
    assert ask(server, "POST", "/decisions", **headers)[0] == 413


def test_a_port_that_is_taken_is_named(server: ReviewServer, tmp_path: Path) -> None:
    with pytest.raises(OSError, match=f"port {server.port} of 127.0.0.1 cannot be used .*; choose another"):
        server_of(tmp_path / "check", port=server.port)


def test_several_windows_lose_nothing(server: ReviewServer) -> None:
    names = list(server.labels)
    threads = [
        threading.Thread(target=post, args=(server, [{"id": name, "kind": "relabel", "label": "cat"}]))
        for name in names
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    decided = read_checked_decisions(server.path, classes=server.classes)
    assert {name: each.label for name, each in decided.items()} == dict.fromkeys(names, "cat")
    assert all(decided[name].given_label == server.labels[name][0] for name in names)
    post(server, [{"id": names[0]}])
    assert names[0] not in server.read(), "taken back"
    status, rows = ask(server, "GET", "/decisions", **{"X-Token": server.token})
    assert status == 200
    assert len(json.loads(rows)) == len(names) - 1


def test_decisions_about_random_samples_of_a_run_are_a_clean_set_of_their_own(tmp_path: Path) -> None:
    """Those about suspects say nothing about how many labels are wrong."""
    folder = run_folder(tmp_path / "run")
    rows = pq.read_table(folder / "suspects.parquet")
    pq.write_table(rows.slice(0, 3), folder / "audit.parquet")
    server = server_of(folder)
    try:
        random, *_, suspect = rows["id"].to_pylist()
        server.change([{"id": suspect, "kind": "keep"}])
        assert not (folder / "audit.csv").exists()
        server.change([{"id": random, "kind": "keep"}])
    finally:
        server.close()
    assert list(read_checked_decisions(folder / "review.csv", classes=server.classes)) == [suspect, random]
    assert list(read_checked_decisions(folder / "audit.csv", classes=server.classes)) == [random]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("{", b""),
        ({"id": 1}, b"no list of decisions"),
        ([{"id": "ant/99.png", "kind": "keep"}], b"there is no sample"),
        ([{"id": "ant/0.jpg", "kind": "burn"}], b"is no decision"),
        ([{"id": "ant/0.jpg", "kind": "relabel", "label": "=1+1"}], b"is no decision"),
    ],
)
def test_nonsense_is_refused_and_changes_nothing(server: ReviewServer, rows: Any, message: bytes) -> None:
    status, answer = post(server, rows)
    assert status == 400
    assert message in answer
    assert not server.path.exists()
