"""The output formats of a report, one module per format."""

from kvsim.plumbing.registry import Registry
from kvsim.report.form import Form

FORMS: Registry[Form] = Registry(
    "format",
    {
        "html": "kvsim.report.formats.pages:Html",
        "md": "kvsim.report.formats.markdown:Markdown",
        "csv": "kvsim.report.formats.csv:Csv",
        "png": "kvsim.report.formats.pages:Png",
        "apng": "kvsim.report.formats.apng:Apng",
        "pdf": "kvsim.report.formats.pages:Pdf",
    },
)
