"""Compare the catalog of a site with the available images: in directories, in registries and on web servers."""
