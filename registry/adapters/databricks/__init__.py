"""MLflow as Databricks has it: runs and artifacts in a workspace, model versions in Unity Catalog.

MLflow's library and Databricks' own, which it brings, know every way to log in and every cloud that files may lie in.
"""
