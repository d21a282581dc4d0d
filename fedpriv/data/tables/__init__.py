"""A user's own tables: CSV and Parquet readers, the schema, and what a release requires of it.

May import `fedpriv.data` beside it. Start with `schema` (what is public about a table), then
`table` (from a file to records); `readers` parses CSV and Parquet.
"""
