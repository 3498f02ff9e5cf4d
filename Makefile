# The main commands are `make demo` and `make test`. They create everything in .venv/ and .demo/, except for system
# packages, the cached images and, for root's `make test`, an account. (`make check` also creates build/.)
.DEFAULT_GOAL := help
.PHONY: help demo docs check test test-pythons test-versions test-nightly test-faults bench image release clean

help: ## show this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 16

demo: ## set everything up, install the example container module and use it
	@scripts/demo

check: ## run style checks and unit tests; needs only .venv and about a minute
	@scripts/check

test: ## set everything up and run the tests; started by root, they run as an ordinary account
	@scripts/test

test-pythons: ## run unit tests and ebsif with Python 3.9 and 3.13, the easyblocks with 3.7
	@scripts/test-pythons

test-versions: ## install and use a module with every available version of EasyBuild, modules tools and Python
	@scripts/test-versions

test-nightly: ## run the tests of other people's programs and rare combinations, which are not part of `make test`
	@scripts/test -m 'nightly or hypothesis' --hypothesis-profile=search

test-faults: ## run all fault and hostile-input tests, with kill -9 at every point (about an hour)
	@scripts/test tests/faults -m '' --hypothesis-profile=search --every-point --dist=load --faults-report=.demo/faults.json

bench: ## benchmark against the tools in use today: a table, and .demo/bench.json
	@scripts/bench

docs: ## build the project's own web pages in .demo/docs, with the reference from the code
	@scripts/docs

image: ## build the example image unless it is cached, and print its path
	@scripts/setup-system --image
	@scripts/build-example-image --variant pytorch

release: ## build source distribution, wheel and easyconfig of the last commit in dist/, then test; publishes nothing
	@scripts/build-release
	@scripts/test

clean: ## remove everything that demo and test created here (not system packages, not the cached images)
	rm -rf .venv .demo build generator/*.egg-info
