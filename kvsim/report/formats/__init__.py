"""The forms a report comes in: one file a form, and its line here."""

from kvsim.plumbing.registry import Registry
from kvsim.report.form import Form

FORMS: Registry[Form] = Registry(
    "format",
    {
        "html": "kvsim.report.formats.html:Html",
        "md": "kvsim.report.formats.markdown:Markdown",
        "csv": "kvsim.report.formats.csv:Csv",
        "png": "kvsim.report.formats.png:Png",
        "apng": "kvsim.report.formats.apng:Apng",
        "pdf": "kvsim.report.formats.pdf:Pdf",
    },
)
