"""A report on fits: one self-contained HTML page, with the verdict in a sentence at its top."""

from pcuq.report.evidence import Case, HeldOut
from pcuq.report.page import report

__all__ = ["Case", "HeldOut", "report"]
