"""Archives of topics as Parquet: what is in one, and what is done with it by DataFrames. `barnabas pipeline` is the command."""
