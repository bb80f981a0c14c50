"""A server for one reviewer's machine: serves a page on the loopback interface and saves every decision at once.

It answers requests only with the token in its address, and only under its own name, so that neither another user nor a
web page opened beside it can read or change decisions. Changes are merged sample by sample: several windows may review
at the same time and none undoes what another decided.
"""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Collection
from html import escape
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from ..runtime.files import locked, write_atomically
from .decisions import KINDS, Decision, Decisions, as_csv, read_checked_decisions

HOST = "127.0.0.1"
AUDIT = "audit.csv"
LARGEST = 16 * 2**20  # bytes of a request
POLICY = b"default-src &#39;none&#39;; "  # as it stands in the page

Labels = dict[str, tuple[str, str]]  # given and suggested label of every sample on the page, by id


class ReviewServer(ThreadingHTTPServer):
    """Serves the page of a run; `serve_forever` runs until it is shut down."""

    daemon_threads = True

    def __init__(
        self,
        page: bytes,
        labels: Labels,
        classes: list[str],
        decisions: Path,
        port: int = 0,
        *,
        audit: Collection[str] = (),
    ) -> None:
        """
        Args:
            page: the page.
            labels: given and suggested label of every sample on it.
            classes: the class names.
            decisions: the file to save decisions to.
            port: 0 for any free one.
            audit: samples that were drawn at random; decisions about them are also saved to audit.csv, beside the
                others: they alone say how many labels are wrong.
        """
        super().__init__((HOST, port), Handler)
        self.token = secrets.token_urlsafe(24)
        self.audit = frozenset(audit)
        where = escape(str(decisions), quote=True)
        meta = (
            f'<meta name="mslg-token" content="{self.token}">\n<meta name="mslg-file" content="{where}">\n<title>'
        ).encode()
        self.page = page.replace(POLICY, POLICY + b"connect-src &#39;self&#39;; ", 1).replace(b"<title>", meta, 1)
        self.labels, self.classes, self.path = labels, classes, decisions
        self.lock = threading.Lock()

    @property
    def address(self) -> str:
        """Where the page is, with the token."""
        return f"http://{HOST}:{self.server_address[1]}/?token={self.token}"

    def read(self) -> Decisions:
        """The decisions on disk."""
        return read_checked_decisions(self.path, classes=self.classes) if self.path.exists() else {}

    def change(self, rows: list[dict[str, Any]]) -> int:
        """Take changes into the file; a row without a kind takes a decision back. Returns how many are decided."""
        changes = [(str(row["id"]), self._decision(row)) for row in rows]
        with self.lock, locked(self.path):  # the lock on the file is for a second server on the same run
            decisions = self.read()
            for name, decision in changes:
                decisions.pop(name, None)
                if decision is not None:
                    decisions[name] = decision
            write_atomically(self.path, as_csv(decisions))
            if any(name in self.audit for name, _ in changes):
                checked = {name: decision for name, decision in decisions.items() if name in self.audit}
                write_atomically(self.path.with_name(AUDIT), as_csv(checked))
        return len(decisions)

    def _decision(self, row: dict[str, Any]) -> Decision | None:
        name, kind, label = str(row["id"]), row.get("kind"), str(row.get("label") or "")
        if name not in self.labels:
            raise ValueError(f"there is no sample '{name}' on this page")
        if kind is None:
            return None
        if kind not in KINDS or (label and label not in self.classes):
            raise ValueError(f"'{kind}' as '{label}' is no decision; allowed are {', '.join(KINDS)} and known classes")
        return Decision(name, kind, label, *self.labels[name])


class Handler(BaseHTTPRequestHandler):
    """Answers the requests of the page."""

    server: ReviewServer
    server_version, sys_version = "mslg", ""

    def do_GET(self) -> None:
        address = urlsplit(self.path)
        if address.path == "/" and self._is_allowed(parse_qs(address.query).get("token", [""])[0]):
            self._answer(HTTPStatus.OK, self.server.page, "text/html; charset=utf-8")
        elif address.path == "/decisions" and self._is_allowed(self.headers.get("X-Token", "")):
            found = [
                {"id": each.id, "kind": each.decision, "label": each.label} for each in self.server.read().values()
            ]
            self._answer(HTTPStatus.OK, json.dumps(found).encode())
        else:
            self._refuse()

    def do_POST(self) -> None:
        if self.path != "/decisions" or not self._is_allowed(self.headers.get("X-Token", "")):
            self._refuse()
            return
        try:
            length = int(self.headers.get("Content-Length", ""))
            if not 0 <= length <= LARGEST:
                raise ValueError(f"a request of {length} bytes is too large")
            rows = json.loads(self.rfile.read(length))
            if not isinstance(rows, list) or not all(isinstance(row, dict) and "id" in row for row in rows):
                raise ValueError("the request is no list of decisions")
            decided = self.server.change(rows)
        except ValueError as error:
            self._answer(HTTPStatus.BAD_REQUEST, str(error).encode(), "text/plain; charset=utf-8")
            return
        except OSError as error:
            self._answer(HTTPStatus.INSUFFICIENT_STORAGE, str(error).encode(), "text/plain; charset=utf-8")
            return
        self._answer(HTTPStatus.OK, json.dumps({"decided": decided}).encode())

    def _is_allowed(self, token: str) -> bool:
        """Whether the request has the token and came to this address: another name is a web page that was rebound."""
        port = self.server.server_address[1]
        here = self.headers.get("Host") in (f"{HOST}:{port}", f"localhost:{port}")
        return here and secrets.compare_digest(token.encode(), self.server.token.encode())

    def _refuse(self) -> None:
        self._answer(HTTPStatus.FORBIDDEN, b"open the address that mslg review has printed", "text/plain")

    def _answer(self, status: HTTPStatus, content: bytes, kind: str = "application/json") -> None:
        self.send_response(status)
        for name, value in {
            "Content-Type": kind,
            "Content-Length": str(len(content)),
            "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
        }.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are not logged: their address holds the token."""
