"""What is made for others from catalog and modules: pages, checks for ReFrame, apps for Open OnDemand."""
