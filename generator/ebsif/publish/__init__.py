"""What is made for others from catalogue and modules: pages, checks for ReFrame, apps for Open OnDemand."""
