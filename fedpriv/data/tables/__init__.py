"""A user's own tables: the CSV and Parquet readers, the schema, and what a release asks of it.

May import `fedpriv.data` beside it. Start with `schema` (what is public about a table), then
`table` (from a file to records); `readers` has the bytes of CSV and Parquet.
"""
