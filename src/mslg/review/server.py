"""A server for one reviewer's machine: serves a page on the loopback interface and saves every decision at once.

It answers requests only with the token in its address, and only under its own name, so that neither another user nor a
web page opened beside it can read or change decisions. Changes are merged sample by sample: several windows may review
at the same time and none undoes what another decided. HTTP is waitress's and Werkzeug's; requests are not logged, as
their address holds the token.
"""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Collection
from html import escape
from http import HTTPStatus
from pathlib import Path
from typing import Any

from waitress.server import create_server
from waitress.wasyncore import close_all
from werkzeug.wrappers import Request, Response

from ..runtime.files import locked, write_atomically
from .decisions import KINDS, Decision, Decisions, as_csv, read_checked_decisions

HOST = "127.0.0.1"
AUDIT = "audit.csv"
LARGEST = 16 * 2**20  # bytes of a request
POLICY = b"default-src &#39;none&#39;; "  # as it stands in the page
HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer"}

Labels = dict[str, tuple[str, str]]  # given and suggested label of every sample on the page, by id


class ReviewServer:
    """Serves the page of a run; `serve_forever` runs until it is shut down."""

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
        self._sockets: dict[int, Any] = {}
        app = Request.application(self._answer)
        settings = {"host": HOST, "port": port, "max_request_body_size": LARGEST, "ident": None}
        try:
            self._server = create_server(app, map=self._sockets, **settings)
        except OSError as error:
            why = f"port {port} of {HOST} cannot be used ({error.strerror}); choose another, or 0 for any free one"
            raise OSError(why) from error
        self.port = int(self._server.effective_port)
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
        return f"http://{HOST}:{self.port}/?token={self.token}"

    def serve_forever(self) -> None:
        """Answer requests until `shut_down` is called, or Ctrl-C."""
        self._server.run()

    def shut_down(self) -> None:
        """End `serve_forever`, from another thread."""
        self._server.trigger.pull_trigger(self.close)

    def close(self) -> None:
        """Free the port; nothing is answered any more."""
        self._server.task_dispatcher.shutdown()
        close_all(self._sockets)

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

    def _answer(self, request: Request) -> Response:
        """The answer to any request."""
        page, token = request.path == "/", request.headers.get("X-Token", "")
        if not self._is_allowed(request.host, request.args.get("token", "") if page else token):
            return _text(HTTPStatus.FORBIDDEN, "open the address that mslg review has printed")
        match request.method, request.path:
            case "GET", "/":
                return Response(self.page, mimetype="text/html", headers=HEADERS)
            case "GET", "/decisions":
                decided = self.read().values()
                return _json([{"id": each.id, "kind": each.decision, "label": each.label} for each in decided])
            case "POST", "/decisions":
                return self._changed(request.get_data())
        return _text(HTTPStatus.NOT_FOUND, f"there is no {request.path} to {request.method} here")

    def _changed(self, content: bytes) -> Response:
        try:
            rows = json.loads(content)
            if not isinstance(rows, list) or not all(isinstance(row, dict) and "id" in row for row in rows):
                raise ValueError("the request is no list of decisions")
            return _json({"decided": self.change(rows)})
        except ValueError as error:
            return _text(HTTPStatus.BAD_REQUEST, str(error))
        except OSError as error:
            return _text(HTTPStatus.INSUFFICIENT_STORAGE, str(error))

    def _is_allowed(self, host: str, token: str) -> bool:
        """Whether a request has the token and came to this address: another name is a web page that was rebound."""
        here = host in (f"{HOST}:{self.port}", f"localhost:{self.port}")
        return here and secrets.compare_digest(token.encode(), self.token.encode())


def _json(content: Any) -> Response:
    return Response(json.dumps(content), mimetype="application/json", headers=HEADERS)


def _text(status: HTTPStatus, message: str) -> Response:
    return Response(message, status, mimetype="text/plain", headers=HEADERS)
