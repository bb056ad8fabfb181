"""The documentation site: `sphinx-build -W -c docs . build/site`, after `pip install -e '.[docs]'`.

Sphinx with the PyData theme is what numpy, scipy, pandas and scikit-learn use, and it imports mmort, so that functions
made at run time are documented; MkDocs has had no release since 2024.  The source directory is the repository's root:
README.md, the examples and the benchmarks are pages too, and relative links work on the site as in a checkout.
"""

import os
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import command_tables
import detector_tables
import limit_table
import nodes
from docutils import nodes as doctrees

import mmort

project = "mmort"
author = "the mmort authors"
project_copyright = "the mmort authors, Apache-2.0"
version = release = mmort.__version__

root_doc = "docs/index"
include_patterns = ["*.md", "docs/**.md", "benchmarks/*.md", "examples/README.md", "examples/*/README.md"]
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.napoleon", "sphinx_copybutton"]
autosummary_generate = False  # tables only: a page describes its functions
myst_heading_anchors = 3
highlight_language = "none"  # blocks that name no language are what commands print; by default they are Python
smartquotes_action = "D"  # dashes only, for which Napoleon writes two hyphens: quotes belong to commands
copybutton_exclude = ".linenos, .gp, .go"  # neither prompts nor what Python prints are copied
default_role = "py:obj"  # `name` in a docstring is a link where it names something of mmort

autodoc_typehints = "none"  # the docstrings name the types, with shapes
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True  # else functions and objects stand there as their repr
napoleon_google_docstring = False
napoleon_use_param = False  # else words of types become links, such as "optional" to Tensor.optional
napoleon_use_ivar = True
napoleon_use_rtype = False

html_theme = "pydata_sphinx_theme"
html_title = f"mmort {release}"
html_show_sourcelink = False
html_extra_path = ["site/index.html"]  # leads to root_doc
templates_path = ["site"]
html_static_path = ["site/style.css"]
html_css_files = ["style.css"]
html_sidebars = {"**": ["contents.html"]}
html_theme_options = {"navbar_center": [], "secondary_sidebar_items": ["page-toc"]}
if "GITHUB_REPOSITORY" in os.environ:  # set in GitHub's workflows, in a fork to the fork
    html_theme_options["github_url"] = f"{os.environ['GITHUB_SERVER_URL']}/{os.environ['GITHUB_REPOSITORY']}"


def add_contents(app, docname, source):
    """Make tables of contents of links, for the menu; GitHub would show them there as code.

    The index gives one below each heading.  The examples are below their own page.
    """
    if docname == root_doc:
        sections = re.split(r"^## ", source[0], flags=re.M)[1:]
    elif docname == "examples/README":
        sections = [source[0].removeprefix("# ")]
    else:
        return
    for section in sections:
        caption = section.partition("\n")[0]
        links = re.findall(r"\[(.+?)\]\((.+?)\.md\)", section)
        pages = "\n".join(f"{title.replace('`', '')} <{path}>" for title, path in links)
        source[0] += f"\n```{{toctree}}\n:caption: {caption}\n:hidden:\n\n{pages}\n```\n"


def show_empty_dicts(app, what, name, obj, options, signature, return_annotation):
    """Show the defaults that data classes make anew for each object: those of documented classes are empty dicts."""
    return signature and signature.replace("<factory>", "{}"), return_annotation


def set_breaks_in_tables(app, doctree, docname):
    """Let long names break after an underscore, a hyphen, a dot or a slash, but no other name, and no "27 / 30"."""
    for table in doctree.findall(doctrees.table):
        for text in list(table.findall(doctrees.Text)):
            if not isinstance(text.parent, doctrees.literal):
                text.parent.replace(
                    text, doctrees.Text(re.sub(r"(?<=\d) / (?=\d)", "\N{NO-BREAK SPACE}/\N{NO-BREAK SPACE}", text))
                )
            elif max(map(len, text.split()), default=0) > 24:
                parts = [part for part in re.split(r"(?<=\w[-_./])(?=\w)", text) if part]
                breaks = [doctrees.raw("", "<wbr>", format="html") for _ in parts]
                mixed = [node for pair in zip(map(doctrees.Text, parts), breaks, strict=True) for node in pair]
                text.parent.replace(text, mixed[:-1])


def setup(app):
    """Make the index's table of contents, generated tables, and what autodoc shows of functions and data classes."""
    app.connect("autodoc-process-signature", show_empty_dicts)
    app.connect("source-read", add_contents)
    for tables in (limit_table, detector_tables, command_tables):
        app.connect("source-read", tables.fill_in)
    app.connect("autodoc-process-docstring", nodes.append_tables)
    app.connect("doctree-resolved", set_breaks_in_tables)
