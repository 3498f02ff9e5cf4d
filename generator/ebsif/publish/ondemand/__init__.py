"""Files that a web portal with Open OnDemand reads: an app for JupyterLab."""
