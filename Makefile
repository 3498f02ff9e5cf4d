# The two commands are `make demo` and `make test`. Everything they create lies in .venv/ and .demo/, system packages
# and the cached example image aside.
.DEFAULT_GOAL := help
.PHONY: help demo test image lint clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 10

demo: ## set everything up, install the example container module and use it
	@scripts/demo

test: ## set everything up and run all tests
	@scripts/test

image: ## build the example image, unless it is cached, and say where it is
	@scripts/setup-system --image
	@scripts/build-example-image --variant pytorch

lint: ## style of Python, shell and easyconfigs
	@scripts/test tests/unit/test_style.py

clean: ## remove what demo and test created here (not system packages, not the cached image)
	rm -rf .venv .demo
