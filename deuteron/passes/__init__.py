"""IR to IR transformations, one file a pass; `pipeline.py` lists them in order."""
