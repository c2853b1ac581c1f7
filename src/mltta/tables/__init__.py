"""What research reads: tables in six formats, plots as SVG, and one page that holds them all.

Plots live in ``mltta.tables.plots``, which needs matplotlib and is imported only by those who draw.
"""

from __future__ import annotations

from mltta.tables.page import Plot, Section, html_page
from mltta.tables.render import Cell, Row, Table, render

__all__ = ["Cell", "Plot", "Row", "Section", "Table", "html_page", "render"]
