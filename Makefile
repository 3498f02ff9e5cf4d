# The two commands are `make demo` and `make test`. Everything they create lies in .venv/ and .demo/, system packages
# and the cached example image aside. (`make check` has links to the project in build/.)
.DEFAULT_GOAL := help
.PHONY: help demo check test test-pythons test-faults faults-report bench image lint release clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 16

demo: ## set everything up, install the example container module and use it
	@scripts/demo

check: ## style and unit tests, with nothing but .venv: one or two minutes
	@scripts/check

test: ## set everything up and run all tests
	@scripts/test

test-pythons: ## unit tests and ebsif with Python 3.9 and 3.13, the easyblocks with 3.7
	@scripts/test-pythons

test-faults: ## faults and hostile input, with kill -9 at every point: about an hour
	@scripts/test tests/faults --every-point --faults-report=.demo/faults.json

faults-report: ## what became of each fault: a table, and .demo/faults.json
	@scripts/test tests/faults --quiet --faults-report=.demo/faults.json

bench: ## measure everything beside what people use today: a table, and .demo/bench.json
	@scripts/bench

image: ## build the example image, unless it is cached, and say where it is
	@scripts/setup-system --image
	@scripts/build-example-image --variant pytorch

lint: ## style of Python, shell and easyconfigs
	@scripts/test tests/unit/test_style.py

release: ## build source distribution, wheel and easyconfig of the last commit: dist/
	@scripts/build-release

clean: ## remove what demo and test created here (not system packages, not the cached image)
	rm -rf .venv .demo build generator/*.egg-info
