"""Settings of the docs site: `make docs` builds it into build/site, with nothing from the network.

The pages are Markdown (MyST); what is generated from the program comes from tools/docs_reference.py. The build is
strict: a dead link, a page that no menu names or a docstring that cannot be read fails it.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tools"))

import penstock

project = "Penstock"
author = "The Penstock authors"
version = release = penstock.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_copybutton", "docs_reference"]
suppress_warnings = ["ref.python"]  # types in signatures that two modules define; links in pages are checked

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4

smartquotes = False  # they would make one dash of the two in front of an option

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_class_signature = "mixed"
autodoc_preserve_defaults = True
add_module_names = False
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88

html_theme = "furo"
html_title = f"Penstock {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False

# The copy button takes the commands of a console block, and neither prompts nor output.
copybutton_prompt_text = "$ "
copybutton_line_continuation_character = "\\"
