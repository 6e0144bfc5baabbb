"""``dmlgpu serve``: serve the page that lends a browser's GPU."""

from __future__ import annotations

import threading
from pathlib import Path

from dmlgpu.runtime.browser.lending import VARIABLE, introduction
from dmlgpu.runtime.browser.server import Page, PageServer


def serve(
    host: str, port: int, *, many: bool = False, certificate: Path | None = None, key: Path | None = None
) -> None:
    """Serve pages until the process is interrupted; print pages that connect and disconnect.

    Raises:
        InvalidArgument: If a key has no certificate, or a file cannot be used.
        OSError: If the address cannot be listened on.
    """
    with PageServer(host, port, many=many, certificate=certificate, key=key, changed=_tell) as server:
        print(introduction(server))
        if certificate is None and not server.address.startswith("http://localhost:"):
            print("Browsers enable WebGPU for secure addresses only: other machines need --cert and --key.\n")
        print(f"For other commands on this machine:\n\n  export {VARIABLE}={server.borrowing}\n", flush=True)
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            print()


def _tell(page: Page) -> None:
    state = "gone" if page.connection is None else "there, its tab hidden" if page.hidden else "there"
    print(f"page {page.index} is {state}: {page.info}", flush=True)
