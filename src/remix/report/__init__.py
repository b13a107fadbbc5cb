"""`remix report`: one page about one or many runs.

The journey: `reading` takes what is in run folders, `groups` sorts it (data, method, seed), `curves`, `terms`,
`likelihoods`, `costs` and `dreams` make charts, tables and pictures of it, `page` puts them on a page.
"""

from remix.report.page import write_report

__all__ = ["write_report"]
