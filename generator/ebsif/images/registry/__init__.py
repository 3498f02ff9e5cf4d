"""Images and artifacts in registries and OCI layout directories, through one interface: `opening.open_repository`."""
