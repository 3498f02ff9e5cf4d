"""Compare the catalogue of a site with the images that there are: in directories, in registries and on web servers."""
