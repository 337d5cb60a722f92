# Each target is a script of scripts/; what they set up and leave alone is said there.
.PHONY: help demo test up down images build bench lint fuzz mutate probes lab

help: ## say what there is
	@sed -n 's,^\([a-z]*\): ## ,  make \1\t,p' Makefile
demo: ## show the whole on this machine: one run on a small internet of its own
	scripts/demo
test: ## run the linters and all tests, on a real engine
	scripts/test
up: ## build, start the stack and wait until a run could start
	scripts/up
down: ## remove the stack from the engine, and those of the demo, the tests and the benchmarks
	scripts/down
images: ## build the programs and the images
	scripts/images
build: ## build the command line alone, bin/sallyport
	scripts/build
bench: ## measure starts, API, tunnel and DNS server beside others
	scripts/bench
lint: ## check form and known faults
	scripts/lint
fuzz: ## run each fuzz target for FUZZTIME
	scripts/fuzz
mutate: ## change the code that judges and seals, and list the changes that no test notices
	scripts/mutate
probes: ## print what an attacker would try, and the test that tries it
	scripts/probes
lab: ## run the stack on Debian 13, engine 26 and cgroup v2, in an emulated machine
	scripts/lab
