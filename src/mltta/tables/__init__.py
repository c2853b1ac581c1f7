"""Tables in six formats, plots as SVG, and self-contained report pages.

``mltta.tables.plots`` needs matplotlib and is imported only when drawing.
"""

from __future__ import annotations

from mltta.tables.page import Plot, Section, html_page
from mltta.tables.render import Cell, Row, Table, render

__all__ = ["Cell", "Plot", "Row", "Section", "Table", "html_page", "render"]
