"""The documentation site: `sphinx-build -W -c docs . build/site`, after `pip install -e '.[docs]'`.

Sphinx with the PyData theme is what numpy, scipy, pandas and scikit-learn use, and it imports mmort, so that functions
made at run time are documented; MkDocs has had no release since 2024.  The source directory is the repository's root:
README.md, the examples and the benchmarks are pages too, and relative links work on the site as in a checkout.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import nodes

import mmort

project = "mmort"
author = "the mmort authors"
project_copyright = "the mmort authors, Apache-2.0"
version = release = mmort.__version__

root_doc = "docs/index"
include_patterns = ["*.md", "docs/**.md", "benchmarks/README.md", "examples/*/README.md"]
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_heading_anchors = 3
default_role = "py:obj"  # `name` in a docstring is a link where it names something of mmort

autodoc_typehints = "none"  # the docstrings name the types, with shapes
autodoc_member_order = "bysource"
napoleon_google_docstring = False
napoleon_use_rtype = False

html_theme = "pydata_sphinx_theme"
html_title = f"mmort {release}"
html_show_sourcelink = False
html_extra_path = ["site"]  # index.html, which leads to root_doc
html_theme_options = {"navigation_with_keys": False, "secondary_sidebar_items": ["page-toc"]}


def setup(app):
    """Add the table of ONNX nodes to the numpy functions' docstrings."""
    app.connect("autodoc-process-docstring", nodes.append_tables)
