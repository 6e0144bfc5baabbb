"""Answering requests, a line each: of this package, since peers answer where dmlgpu need not be installed."""

from __future__ import annotations

import gc
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, TextIO


class LineServer(ABC):
    """Answers requests, of which ``do`` says what is asked for. Errors are answers, too: one is not the end of others.

    Attributes:
        refusals: exceptions that say what cannot be had here.
        failures: exceptions whose text says all; others are told with their type.
    """

    refusals: ClassVar[tuple[type[Exception], ...]] = ()
    failures: ClassVar[tuple[type[Exception], ...]] = ()

    @abstractmethod
    def handle(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Do what is asked for, and return the answer."""

    def serve(self, requests: TextIO, answers: TextIO) -> None:
        """Answer requests, a line of JSON each, until they end."""
        gc.disable()  # while nothing is measured it is done by hand
        for line in requests:
            print(json.dumps(self.answer(json.loads(line))), file=answers, flush=True)

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return what ``handle`` does, else ``refused`` or ``failed`` with a sentence."""
        try:
            return self.handle(request)
        except self.refusals as refusal:
            return {"refused": str(refusal)}
        except self.failures as error:
            return {"failed": str(error)}
        except Exception as error:
            return {"failed": f"{type(error).__name__}: {error}"}
