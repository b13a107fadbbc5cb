"""`remix report`: one page about one or many runs.

`runs` reads their folders and sorts them, `charts`, `terms`, `tables` and `pictures` show them, `page` is the page.
"""

from remix.report.page import write_report

__all__ = ["write_report"]
