"""Report pages: a comparison or several runs as one self-contained HTML file, and the same as JSON.

Start with `parts`, from which every document is made. `of_comparison` and `of_runs` fill them,
`svg` draws figures, `render` makes the page from the document alone, `files` reads results and
writes everything. Of a release only files and fields of its outcome are read. Each of the others is
one section, or one kind of figure, and so they are a few more than elsewhere.
"""
